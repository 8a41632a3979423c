"""The chart's rule files: what is in them, and copies with other durations for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.support.paths import ROOT

FOLDER = ROOT / "charts" / "embertide" / "rules"
FILES = sorted(FOLDER.glob("*.yaml"))
RUNBOOKS = ROOT / "docs" / "runbooks"

Rule = dict[str, Any]


def rules() -> list[Rule]:
    """Every recording rule and alert."""
    return [rule for path in FILES for rule in _rules(yaml.safe_load(path.read_text()))]


def alerts() -> dict[str, Rule]:
    """Every alert by its name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def recorded() -> dict[str, Rule]:
    """Every recording rule by its name."""
    return {rule["record"]: rule for rule in rules() if "record" in rule}


def impatient_copies(folder: Path, wait: str = "1s") -> list[Path]:
    """Copies of the rule files in which every alert waits only so long before it fires."""
    copies = []
    for path in FILES:
        groups = yaml.safe_load(path.read_text())
        for rule in _rules(groups):
            if "alert" in rule:
                rule["for"] = wait
        copies.append(folder / path.name)
        copies[-1].write_text(yaml.safe_dump(groups))
    return copies


def _rules(content: dict[str, Any]) -> list[Rule]:
    return [rule for group in content["groups"] for rule in group["rules"]]
