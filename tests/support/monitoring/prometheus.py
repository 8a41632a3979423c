"""A Prometheus process of this machine, and what it answers over HTTP."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.patience import WAIT_SECONDS
from tests.support.ports import free_port

_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Series:
    """One series of an answer: labels, and its values as (Unix seconds, value)."""

    labels: dict[str, str]
    points: list[tuple[float, float]]

    @property
    def value(self) -> float:
        """The newest value."""
        return self.points[-1][1]


class QueryRefused(AssertionError):
    """Prometheus cannot evaluate a query; the message is its own."""


class Prometheus:
    """One server over a folder: its configuration, its data and its log.

    Args:
        binary: the program.
        folder: an empty folder of its own.
        scrape: ``scrape_configs``.
        rules: files of recording rules and alerts.
        interval: seconds between two scrapes and between two evaluations.
    """

    def __init__(
        self,
        binary: Path,
        folder: Path,
        scrape: list[dict[str, Any]],
        rules: list[Path],
        interval: int = 1,
    ) -> None:
        self._binary, self._folder = binary, folder
        self._port = free_port()
        every = f"{interval}s"
        config = {
            "global": {"scrape_interval": every, "scrape_timeout": every}
            | {"evaluation_interval": every},
            "scrape_configs": scrape,
            "rule_files": [str(path) for path in rules],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Returns when it is ready; RuntimeError with its log where it ends."""
        command = [
            str(self._binary),
            f"--config.file={self._folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address={self.address}",
        ]
        log = self._folder / "prometheus.log"
        with log.open("wb") as out:
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=out, stderr=out)
        deadline = time.monotonic() + WAIT_SECONDS
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"Prometheus does not start:\n{log.read_text()[-2000:]}")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def query(self, expression: str, at: float | None = None) -> list[Series]:
        """The series of an instant query, now or at a time in Unix seconds."""
        moment = {} if at is None else {"time": f"{at:.3f}"}
        answer = self._ask("query", query=expression, **moment)
        if answer["resultType"] == "scalar":
            return [Series({}, [_point(answer["result"])])]
        return [Series(item["metric"], [_point(item["value"])]) for item in answer["result"]]

    def query_range(
        self, expression: str, start: float, end: float, step: float = 1.0
    ) -> list[Series]:
        """The series of a range query; times in Unix seconds, ``step`` in seconds."""
        span = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        answer = self._ask("query_range", query=expression, **span)
        return [
            Series(item["metric"], [_point(point) for point in item["values"]])
            for item in answer["result"]
        ]

    def alerts(self, state: str = "firing") -> list[dict[str, str]]:
        """Labels of the alerts in a state, ``firing`` or ``pending``."""
        found = self._ask("alerts")["alerts"]
        return [alert["labels"] for alert in found if alert["state"] == state]

    def firing(self) -> set[str]:
        """Names of the alerts that fire."""
        return {labels["alertname"] for labels in self.alerts()}

    def rules(self) -> list[dict[str, Any]]:
        """Every loaded rule with its health, last error and evaluation."""
        return [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]

    def targets(self) -> list[dict[str, Any]]:
        """Every active target: labels, health, last error."""
        found: list[dict[str, Any]] = self._ask("targets", state="active")["activeTargets"]
        return found

    def _ask(self, what: str, **parameters: str) -> Any:
        body = urllib.parse.urlencode(parameters)
        url = f"http://{self.address}/api/v1/{what}"
        try:
            with urllib.request.urlopen(f"{url}?{body}", timeout=WAIT_SECONDS) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            said = json.load(error)
            raise QueryRefused(f"{parameters}: {said.get('error')}") from None

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _point(pair: list[Any]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])
