"""A real browser without a screen, spoken to by the DevTools protocol over two pipes.

Pages are opened from files; what they ask for, what they measure and how they look can be asked.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_OPTIONS = (
    "--headless",
    "--remote-debugging-pipe",
    # Chromium refuses root otherwise; it only sees pages that tests have made.
    "--no-sandbox",
    "--disable-gpu",
    # Letters without coloured edges, so that few colours make a picture of a page.
    "--disable-lcd-text",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-extensions",
    "--hide-scrollbars",
    "--no-first-run",
)
Scheme = Literal["light", "dark"]


def find_browser() -> str | None:
    """Chromium's path; None where it is not installed."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


MISSING = "needs a browser: install chromium (Debian: make cluster-packages)"


class Browser:
    """Chromium with one page.

    Attributes:
        requests: URLs that the page has asked for since it was opened, its own first.
        problems: what it could not load, threw, or was refused by its own policy.
    """

    def __init__(self, process: subprocess.Popen[bytes], commands: int, answers: int) -> None:
        self._process = process
        self._commands = os.fdopen(commands, "wb", buffering=0)
        self._answers = os.fdopen(answers, "rb", buffering=0)
        self._received, self._number, self._session = b"", 0, ""
        self.requests: list[str] = []
        self.problems: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def open(self, page: Path, *, width: int, height: int = 900, scheme: Scheme = "light") -> None:
        """Show a file in a window of some size, for people who like light or dark."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._call("Emulation.setEmulatedMedia", features=[feature])
        self.requests, self.problems = [], []
        self._call("Page.navigate", url=page.as_uri())
        self._await("Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, as JSON."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, *, whole: bool = True) -> bytes:
        """The page as a PNG, or only what the window shows of it."""
        answer = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(answer["data"])

    def close(self) -> None:
        """End it."""
        self._call("Browser.close", session=False)
        self._commands.close()
        self._answers.close()
        self._process.wait(30)

    def _call(self, method: str, *, session: bool = True, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session and session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _await(self, event: str) -> None:
        while self._next().get("method") != event:
            pass

    def _next(self) -> dict[str, Any]:
        """The next message; events of interest are noted."""
        while b"\0" not in self._received:
            data = self._answers.read(1 << 16)
            assert data, f"the browser ended: {self._process.poll()}"
            self._received += data
        first, _, self._received = self._received.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        method, params = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Log.entryAdded":
            self.problems.append(params["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"]))
        return message


@contextmanager
def browser(program: str, folder: Path) -> Iterator[Browser]:
    """Chromium, with its files in ``folder``, until the end of the block."""
    commands_in, commands = os.pipe()
    answers, answers_out = os.pipe()
    # It reads from file 3 and writes to file 4, whatever numbers ours have.
    launch = f'exec 3<&{commands_in} 4>&{answers_out}; exec "$0" "$@"'
    process = subprocess.Popen(
        ["/bin/bash", "-c", launch, program, *_OPTIONS, f"--user-data-dir={folder}"],
        pass_fds=(commands_in, answers_out),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(commands_in)
    os.close(answers_out)
    page = Browser(process, commands, answers)
    try:
        yield page
    finally:
        page.close()
