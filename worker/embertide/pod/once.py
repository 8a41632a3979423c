"""A container that works out one answer and ends: the planner, the look at inputs, and a push."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from embertide.launch.signals import StopRequest
from embertide.pod.endings import ending_of, write_ending, write_termination_message
from embertide.pod.logs import log_to_stderr
from embertide.pod.settings import ContainerFiles
from embertide.spec.reports import Ending, ReportModel

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
    ended: list[ReportModel] = []

    def answer() -> None:
        try:
            result = make(files)
        except BaseException as error:
            ending = ending_of(error)
            _log.error("failed: %s: %s", ending.reason, ending.message)
            ended.append(ending)
        else:
            _log.info("%s", result.to_text())
            ended.append(result)

    # In a thread, so that a signal is answered while a library is busy.
    thread = threading.Thread(target=answer, name="answer", daemon=True)
    thread.start()
    while thread.is_alive() and not stop.asked:
        thread.join(_TICK_SECONDS)
    if not ended:
        return _STOPPED
    (last,) = ended
    if isinstance(last, Ending):
        write_ending(files.termination_log, last)
        return last.exit_code
    write_termination_message(files.termination_log, last.to_text())
    return 0
