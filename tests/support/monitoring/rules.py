"""The chart's rule files: what is in them, and copies with shorter durations for tests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.paths import ROOT

FOLDER = ROOT / "charts" / "embertide" / "rules"
FILES = sorted(FOLDER.glob("*.yaml"))
RUNBOOKS = ROOT / "docs" / "runbooks"

Rule = dict[str, Any]


def rules(files: list[Path] = FILES) -> list[Rule]:
    """Every recording rule and alert."""
    contents = [yaml.safe_load(path.read_text()) for path in files]
    return [rule for content in contents for rule in _rules(content)]


def alerts() -> dict[str, Rule]:
    """Every alert by its name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def recorded() -> dict[str, Rule]:
    """Every recording rule by its name."""
    return {rule["record"]: rule for rule in rules() if "record" in rule}


def impatient_copies(
    folder: Path, waits: Mapping[str, str], ranges: Mapping[str, str]
) -> list[Path]:
    """Copies of the rule files that differ only in durations.

    Args:
        waits: how long an alert holds before it fires; others keep theirs.
        ranges: shorter ranges of vectors by those of the files, such as ``5m``.
    """
    copies = []
    for path in FILES:
        content = yaml.safe_load(path.read_text())
        for rule in _rules(content):
            rule["expr"] = _shorter(rule["expr"], ranges)
            if rule.get("alert") in waits:
                rule["for"] = waits[rule["alert"]]
        copies.append(folder / path.name)
        copies[-1].write_text(yaml.safe_dump(content))
    return copies


def _shorter(expression: str, ranges: Mapping[str, str]) -> str:
    return re.sub(r"\[(\w+)\]", lambda found: f"[{ranges[found[1]]}]", expression)


def _rules(content: dict[str, Any]) -> list[Rule]:
    return [rule for group in content["groups"] for rule in group["rules"]]
