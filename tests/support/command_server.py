"""Serves real commands quickly: imports everything once, forks a process for every command line.

Each command runs in a session of its own, through the entry point that is installed, and ends
as the interpreter ends. Reads one JSON request a line; answers [process id, exit code].
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

from tests.support.forked_helpers import fork_helpers


def main() -> None:
    import boto3  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    import embertide.cli
    import embertide.launch.local
    import embertide.launch.preload  # noqa: F401

    fork_helpers()
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(request)
            embertide.cli.main(request["argv"])
            return
        status = os.waitpid(child, 0)[1]
        print(json.dumps([child, os.waitstatus_to_exitcode(status)]), flush=True)


def _become(request: dict[str, Any]) -> None:
    """A process as a shell would start it."""
    os.setsid()
    for number, (name, mode) in enumerate(
        [
            (os.devnull, os.O_RDONLY),
            (request["stdout"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
            (request["stderr"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        ]
    ):
        os.dup2(os.open(name, mode), number)
    os.environ.update(request["env"])
    if request["file_bytes"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_bytes"],) * 2)


if __name__ == "__main__":
    main()
