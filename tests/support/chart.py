"""The chart in the hands of the real helm: render it, see it refused, check what comes out."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.go_programs import program
from tools.pages.chart import CHART

Object = dict[str, Any]
Values = Mapping[str, Any]
# That of the test cluster; without a cluster, helm takes the version that it was built for.
_KUBERNETES = ("--kube-version", "1.36.3")


def run(*command: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
    """A program by name, however it ends."""
    return subprocess.run(
        [program(command[0]), *command[1:]], input=input, capture_output=True, text=True
    )


def template(
    values: Values,
    release: str = "embertide",
    chart: Path = CHART,
    namespace: str = "tools",
    helm: str = "helm",
) -> subprocess.CompletedProcess[str]:
    """``helm template`` with a file of values, however it ends; ``helm`` is the program."""
    command = (helm, "template", release, str(chart), "--namespace", namespace, *_KUBERNETES)
    return run(*command, "--values", "-", input=json.dumps(values))


def render(
    values: Values | None = None,
    release: str = "embertide",
    chart: Path = CHART,
    namespace: str = "tools",
    helm: str = "helm",
) -> list[Object]:
    """Every object of a release."""
    made = template(values or {}, release, chart, namespace, helm)
    assert made.returncode == 0, made.stderr
    # In C where it is there: a release is half a megabyte.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [item for item in yaml.load_all(made.stdout, loader) if item]


def refusal(values: Values) -> str:
    """Why helm refuses values; AssertionError if it does not."""
    made = template(values)
    assert made.returncode != 0, f"taken: {values}"
    return made.stderr


def lint(values: Values) -> subprocess.CompletedProcess[str]:
    """``helm lint --strict``."""
    command = ("helm", "lint", "--strict", str(CHART), *_KUBERNETES, "--values", "-")
    return run(*command, input=json.dumps(values))


def only(objects: Iterable[Object], kind: str, name: str = "") -> Object:
    """The one object of a kind, or of a kind and name."""
    found = [o for o in objects if o["kind"] == kind and name in ("", o["metadata"]["name"])]
    assert len(found) == 1, [o["metadata"]["name"] for o in found]
    return found[0]


def kubeconform(objects: Iterable[Object], schemas: Path, location: str) -> str:
    """What kubeconform finds wrong, "" for nothing. A kind without a schema is wrong."""
    command = ("kubeconform", "-strict", "-schema-location", f"{schemas}/{location}")
    checked = run(*command, input=yaml.safe_dump_all(objects))
    return "" if checked.returncode == 0 else checked.stdout + checked.stderr
