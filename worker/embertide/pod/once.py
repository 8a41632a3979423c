"""A container that works out one answer and ends: the planner, and the look at inputs."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from embertide.launch.signals import StopRequest
from embertide.pod.endings import ending_of, write_termination_message
from embertide.pod.logs import log_to_stderr
from embertide.pod.settings import ContainerFiles
from embertide.spec.reports import ReportModel

_TICK_SECONDS = 0.1
_STOPPED = 143

_log = logging.getLogger("embertide.pod")


def answer_once(stop: StopRequest, make: Callable[[ContainerFiles], ReportModel]) -> int:
    """Leave what ``make`` returns, or an Ending, as the termination message.

    Returns:
        The container's exit code.
    """
    log_to_stderr()
    files = ContainerFiles.of(os.environ)
    found: list[tuple[str, int]] = []

    def answer() -> None:
        try:
            result = make(files)
        except BaseException as error:
            ending = ending_of(error)
            _log.error("failed: %s: %s", ending.reason, ending.message)
            found.append((ending.to_text(), ending.exit_code))
        else:
            _log.info("%s", result.to_text())
            found.append((result.to_text(), 0))

    # In a thread, so that a signal is answered while a library is busy.
    thread = threading.Thread(target=answer, name="answer", daemon=True)
    thread.start()
    while thread.is_alive() and not stop.asked:
        thread.join(_TICK_SECONDS)
    if not found:
        return _STOPPED
    message, code = found[0]
    write_termination_message(files.termination_log, message)
    return code
