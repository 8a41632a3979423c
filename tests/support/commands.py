"""Runs the real command, and looks at what it leaves: messages, processes, versions."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from embertide.io.storage.opening import open_storage
from embertide.io.versions.catalog import latest, list_versions
from embertide.io.versions.reading import iter_embeddings
from tests.support.forked_process import ForkedProcess
from tests.support.patience import SOON_SECONDS

_WORKER = "embertide-"
"""What workers' processes are called, before their rank."""

_WITHOUT_POWERS = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
"""Makes file permissions count for root too: drops what lets it pass them by."""

"""How long after a command's end its helpers may take to notice."""


@dataclass(frozen=True)
class Done:
    """A command that ended."""

    code: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        """What --json wrote."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def message(self) -> str:
        """The error as the user reads it; it must be all there is beside the progress."""
        _, found, message = self.err.partition("embertide: error: ")
        assert found, self.err
        before = self.err[: -len(found + message)].splitlines()
        assert all(line.startswith("embertide: ") for line in before), self.err
        return message.strip()


class Commands:
    """Runs command lines one after another; ``folder`` takes their output."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(
        self,
        *argv: str,
        env: dict[str, str] | None = None,
        folder: Path | None = None,
        file_bytes: int | None = None,
    ) -> Done:
        """Run a command to its end; no process of it may remain.

        Args:
            folder: where it runs; default: where we do.
            file_bytes: limits the size of every file it writes.
        """
        out, err = self._folder / "stdout", self._folder / "stderr"
        for path in (out, err):
            path.write_text("")
        process = ForkedProcess(
            "embertide",
            *argv,
            stdout=out,
            stderr=err,
            env=environment() | (env or {}),
            folder=folder,
            file_bytes=file_bytes,
        )
        code = process.wait()
        await_nobody(process.pid)
        return _done(code, out.read_text(), err.read_text())


def _done(code: int, out: str, err: str) -> Done:
    assert "Traceback" not in err, err
    assert "Warning" not in err, err
    return Done(code, out, err)


def environment() -> dict[str, str]:
    """Ours, with the package on the path as we have it."""
    import embertide

    place = str(Path(embertide.__file__).parents[1])
    plain = {name: value for name, value in os.environ.items() if name != "EMBERTIDE_DEBUG"}
    return plain | {"PYTHONPATH": place}


class Running:
    """A command under way, in a session and process group of its own.

    Its temporary folder is ``scratch``, by default one of its own. It is a :class:`ForkedProcess`,
    or where it is to be ``new``, an interpreter that imports everything itself.
    """

    process: ForkedProcess | subprocess.Popen[bytes]

    def __init__(
        self,
        folder: Path,
        *argv: str,
        new: bool = False,
        powerless: bool = False,
        scratch: Path | None = None,
    ) -> None:
        self._out, self._err = folder / "stdout", folder / "stderr"
        # Not below the test's own folder, whose path can be too long for a socket's name.
        self.scratch = scratch or Path(tempfile.mkdtemp(prefix="em-"))
        atexit.register(shutil.rmtree, self.scratch, ignore_errors=True)
        env = environment() | {"TMPDIR": str(self.scratch)}
        with self._out.open("w") as out, self._err.open("w") as err:
            if not (new or powerless):
                self.process = ForkedProcess(
                    "embertide", *argv, stdout=self._out, stderr=self._err, env=env
                )
                return
            self.process = subprocess.Popen(
                [*(_WITHOUT_POWERS if powerless else ()), sys.executable, "-m", "embertide", *argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=env,
                start_new_session=True,
            )

    def output(self) -> str:
        """What it wrote to stdout so far."""
        return self._out.read_text()

    def await_stage(self, stage: str, layer: int = 0) -> None:
        """Until the command's --json progress says that a stage (and layer) is under way."""
        wanted = {"event": "progress", "stage": stage, "layer": layer}
        while True:
            ended = self.process.poll() is not None
            text = self._out.read_text()
            for line in text[: text.rfind("\n") + 1].splitlines():
                if wanted.items() <= json.loads(line).items():
                    return
            assert not ended, f"ended before {stage}: {text}{self._err.read_text()}"
            time.sleep(0.005)

    def await_file(self, folder: Path, pattern: str) -> None:
        """Until a file of a folder matches."""
        while not any(folder.glob(pattern)):
            assert self.process.poll() is None, self._err.read_text()
            time.sleep(0.001)

    def workers(self, count: int) -> list[int]:
        """Process ids of the workers by rank, once all have started."""
        while len(found := self.workers_there()) != count:
            assert self.process.poll() is None, self._err.read_text()
            time.sleep(0.005)
        return found

    def workers_there(self) -> list[int]:
        """Process ids of the workers by rank that there are right now."""
        names = ((name_of(process), process) for process in members(self.process.pid))
        ranks = sorted(
            (int(name.removeprefix(_WORKER)), process)
            for name, process in names
            if name.startswith(_WORKER)
        )
        assert len({rank for rank, _ in ranks}) == len(ranks), ranks
        return [process for _, process in ranks]

    def kill_workers(self, count: int, *ranks: int) -> None:
        """Kill these of the command's ``count`` workers, all of which must be alive.

        Nothing of the command moves meanwhile: its launcher ends and reaps the others as soon as it
        sees that a worker is dead.
        """
        self.hold()
        workers = self.workers_there()
        assert len(workers) == count, self._err.read_text()
        for rank in ranks:
            os.kill(workers[rank], signal.SIGKILL)
        self.go_on()

    def hold(self) -> None:
        """Stop every process of it, as long as nobody sends SIGCONT."""
        for process in members(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGSTOP)

    def go_on(self) -> None:
        """Undo :meth:`hold`, or where a test has stopped some processes only."""
        for process in members(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)

    def done(self, seconds: float) -> Done:
        """The end, which must come within ``seconds`` and leave no process."""
        code = self.process.wait(seconds)
        await_nobody(self.process.pid)
        return _done(code, self._out.read_text(), self._err.read_text())


def members(session: int) -> list[int]:
    """Processes of a session that are alive."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            # After the name, which is in parentheses and may hold anything.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


def name_of(process: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{process}/comm").read_text().strip()
    return ""


def is_worker(process: int) -> bool:
    """Whether a process is the one of a rank."""
    return name_of(process).removeprefix(_WORKER).isdigit()


def await_nobody(session: int) -> None:
    """Until a session has no process any more; names those that stay."""
    deadline = time.monotonic() + SOON_SECONDS
    while found := members(session):
        assert time.monotonic() < deadline, {process: name_of(process) for process in found}
        time.sleep(0.02)


class Published:
    """An output with a version, which must outlive whatever happens to the next run."""

    def __init__(self, output: Path) -> None:
        self._output, self.uri = output, f"file://{output}"
        self._storage = open_storage(None)
        self.version = latest(self._storage, self.uri).version
        self._versions = list_versions(self._storage, self.uri)
        self._files = self._all_files()
        self._values = self._read()

    def is_newest(self) -> bool:
        """Whether no other version has been completed since."""
        return list_versions(self._storage, self.uri) == self._versions

    def check_untouched(self) -> None:
        """The version is there, current and readable, and nothing is beside it."""
        assert self._all_files() == self._files
        self._check_readable()

    def check_beside(self) -> None:
        """The same of what a killed run leaves: beside it may be an incomplete version."""
        files = self._all_files()
        assert self._files.items() <= files.items()
        started = {Path(name).parts[:2] for name in files.keys() - self._files.keys()}
        assert len(started) <= 1, started
        assert all(folder == "versions" for folder, _ in started), started
        self._check_readable()

    def _check_readable(self) -> None:
        assert list_versions(self._storage, self.uri) == self._versions
        assert latest(self._storage, self.uri).version == self.version
        assert np.array_equal(self._read(), self._values)

    def _all_files(self) -> dict[str, int]:
        """Also hidden ones; folders of versions count, even empty."""
        return {
            str(path.relative_to(self._output)): path.stat().st_mtime_ns if path.is_file() else 0
            for path in self._output.rglob("*")
        }

    def _read(self) -> np.ndarray:
        batches = list(iter_embeddings(self._storage, self.uri, self.version))
        values = np.concatenate([values for _, values in batches])
        assert np.isfinite(values).all()
        return values
