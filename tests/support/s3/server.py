"""A real S3 server (versitygw) for tests, from pinned sources: one process a session.

A mock in this process would share our mistakes and could neither be stopped nor be slow.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.go_programs import program
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import free_port

BUCKET = "embertide-tests"
REGION = "us-east-1"
AMBIENT = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_CA_BUNDLE")
"""Variables that would go beside a server's credentials, or lead to another one."""


def server_program() -> Path:
    """The server's binary."""
    return program("versitygw")


class S3Server:
    """One server process over a directory; ``stop`` and ``start`` make an outage.

    It keeps its port and its objects over outages. ``access_key`` and ``secret_key`` are made
    for this process alone. ``options``: more of the program's own.

    Attributes:
        host: the address that it listens at when it starts next.
        within: what its command line begins with then, such as the words that run a command in a
            network namespace.
    """

    def __init__(self, binary: Path, folder: Path, options: tuple[str, ...] = ()) -> None:
        self.access_key = secrets.token_hex(8)
        self.secret_key = secrets.token_hex(20)
        self.bucket = BUCKET
        self.region = REGION
        self.host, self.within = "127.0.0.1", tuple[str, ...]()
        self._binary, self._folder, self._options = binary, folder, options
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "objects" / BUCKET).mkdir(parents=True)

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"http://{self.host}:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """What the standard credential chain needs."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": self.region,
        }

    def uri(self, key: str) -> str:
        """An object's or a prefix's URI in the bucket."""
        return f"s3://{self.bucket}/{key}"

    def start(self) -> None:
        """Start the process and wait until it answers; RuntimeError with its log if it ends."""
        if self._process is not None:
            return
        keys = {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}
        command = [*self.within, str(self._binary), "--region", REGION]
        command += ["--port", f"{self.host}:{self._port}"]
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *self._options, "posix", str(self._folder / "objects")],
                env=os.environ | keys,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + WAIT_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                log_text = (self._folder / "server.log").read_text()
                self.stop()
                raise RuntimeError(f"the S3 server did not start:\n{log_text}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End the process (objects stay); connections break as in a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        if self.within:
            look = ["bash", "-c", f"exec 3<>/dev/tcp/{self.host}/{self._port}"]
            return subprocess.run([*self.within, *look], capture_output=True).returncode == 0
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self._port)) == 0


@contextmanager
def server_with_accounts(folder: Path) -> Iterator[S3Server]:
    """A running server with the bucket ``shop``, whose accounts can be made and deleted."""
    (folder / "objects" / "shop").mkdir(parents=True)
    found = S3Server(server_program(), folder, options=("--iam-dir", str(folder)))
    found.start()
    try:
        yield found
    finally:
        found.stop()
