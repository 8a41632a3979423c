"""An OpenTelemetry Collector of this machine: OTLP over HTTP in, the spans it took out."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.go_programs import program
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import free_port

_POLL_SECONDS = 0.05
ERROR = 2
"""The status code of a span with an error."""


@dataclass
class Received:
    """A span as the collector wrote it down, and the spans within it by their start."""

    trace: str
    id: str
    parent: str
    name: str
    start: int
    end: int
    attributes: dict[str, Any]
    status: dict[str, Any]
    resource: dict[str, Any]
    children: list[Received] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether it has the status of an error."""
        return self.status.get("code") == ERROR

    def named(self, name: str) -> Received:
        """The one child of that name."""
        (child,) = (child for child in self.children if child.name == name)
        return child


class Collector:
    """One collector over a folder: its configuration, its file of spans and its log.

    Args:
        host: the address of this machine at which it listens.
    """

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self._folder, self._host, self._port = folder, host, free_port()
        self._file = folder / "spans.jsonl"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """What OTEL_EXPORTER_OTLP_ENDPOINT has to say."""
        return f"http://{self._host}:{self._port}"

    @property
    def text(self) -> str:
        """All that was written down."""
        return self._file.read_text() if self._file.exists() else ""

    def start(self) -> None:
        """Returns when it listens; RuntimeError with its log where it ends."""
        http = {"endpoint": f"{self._host}:{self._port}"}
        config = {
            "receivers": {"otlp": {"protocols": {"http": http}}},
            "exporters": {"file": {"path": str(self._file), "flush_interval": "50ms"}},
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["file"]}},
            },
        }
        (self._folder / "config.yaml").write_text(yaml.safe_dump(config))
        log = self._folder / "otelcol.log"
        command = [str(program("otelcol")), f"--config={self._folder / 'config.yaml'}"]
        with log.open("wb") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out)
        deadline = time.monotonic() + WAIT_SECONDS
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"the collector does not start:\n{log.read_text()[-2000:]}")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def spans(self) -> list[Received]:
        """All spans so far, by their start, each with those within it."""
        found = [span for line in self.text.splitlines() for span in _of_line(json.loads(line))]
        found.sort(key=lambda span: span.start)
        by_id = {span.id: span for span in found}
        for span in found:
            if span.parent in by_id:
                by_id[span.parent].children.append(span)
        return found

    def until(self, count: int) -> list[Received]:
        """Wait for so many spans whose name is that of a run; returns them."""
        deadline = time.monotonic() + WAIT_SECONDS
        while len(roots := [s for s in self.spans() if s.name == "embertide run"]) < count:
            assert time.monotonic() < deadline, self.text
            time.sleep(_POLL_SECONDS)
        return roots

    def _listens(self) -> bool:
        url, headers = f"{self.endpoint}/v1/traces", {"Content-Type": "application/json"}
        try:
            urllib.request.urlopen(urllib.request.Request(url, b"{}", headers), timeout=5).close()
        except OSError:
            return False
        return True


@contextmanager
def collector(folder: Path, host: str = "127.0.0.1") -> Iterator[Collector]:
    """A collector that ends with the block."""
    running = Collector(folder, host)
    running.start()
    try:
        yield running
    finally:
        running.stop()


def _of_line(batch: dict[str, Any]) -> Iterator[Received]:
    for of_resource in batch.get("resourceSpans", []):
        resource = _attributes(of_resource["resource"])
        for scope in of_resource["scopeSpans"]:
            for span in scope["spans"]:
                yield Received(
                    span["traceId"],
                    span["spanId"],
                    span.get("parentSpanId", ""),
                    span["name"],
                    int(span["startTimeUnixNano"]),
                    int(span["endTimeUnixNano"]),
                    _attributes(span),
                    span["status"],
                    resource,
                )


def _attributes(item: dict[str, Any]) -> dict[str, Any]:
    return {entry["key"]: _value(entry["value"]) for entry in item.get("attributes", [])}


def _value(value: dict[str, Any]) -> Any:
    """OTLP's JSON has whole numbers as text."""
    ((kind, found),) = value.items()
    return int(found) if kind == "intValue" else found
