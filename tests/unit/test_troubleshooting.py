"""docs/troubleshooting.md quotes what the code says: every reason and every message is there."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from embertide import errors
from embertide.errors import EmbertideError
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
SOURCES = ("operator/embertide_operator", "worker/embertide")
GAP = "…"

KUBERNETES = {
    "Unschedulable": "the scheduler's, on a pod's condition PodScheduled",
    "SchedulingGated": "the API server's, on a pod's condition PodScheduled",
    "ImagePullBackOff": "the kubelet's, of a waiting container",
    "ErrImagePull": "the kubelet's, of a waiting container",
    "CreateContainerConfigError": "the kubelet's, of a waiting container",
    "FailedMount": "the kubelet's, of an Event about a pod",
    "CrashLoopBackOff": "the kubelet's, of a waiting container",
    "InvalidImageName": "the kubelet's, of a waiting container",
    "ErrImageNeverPull": "the kubelet's, of a waiting container",
    "Evicted": "the kubelet's, of a pod that it terminated",
}
"""Reasons that the operator passes on; see ``operator/embertide_operator/job/failures.py``."""


@cache
def literals() -> frozenset[str]:
    """Every text in the code; what an f-string fills in is a gap."""
    found = set[str]()
    for source in SOURCES:
        for path in (ROOT / source).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)
                if isinstance(node, ast.JoinedStr):
                    found.add("".join(map(_piece, node.values)))
    return frozenset(found)


def _piece(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    return GAP


def is_said(message: str) -> bool:
    """Whether one text has the message's words in order, with anything in its gaps."""
    words = [part.strip() for part in message.split(GAP)]
    pattern = re.compile(".*".join(map(re.escape, filter(None, words))), re.DOTALL)
    return any(pattern.search(text) for text in literals())


def rows(heading: str) -> list[list[str]]:
    """The cells of the tables under a heading, without their head."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = re.findall(r"^\|(.*)\|$", section, re.MULTILINE)
    cells = [[cell.strip() for cell in line.split("|")] for line in lines]
    return [row for row in cells if row[0].startswith("`")]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def reasons() -> list[str]:
    begins = [name for row in rows("It does not begin") for name in quoted(row[1])]
    others = ("Pods do not start", "Attempts fail and are retried", "The job has failed")
    return begins + [name for place in others for row in rows(place) for name in quoted(row[0])]


MESSAGES = [
    line
    for block in re.findall(r"^```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
] + [name for row in rows("The store") for name in quoted(row[0])]


@pytest.mark.parametrize("reason", reasons())
def test_every_reason_is_one_of_the_code(reason: str) -> None:
    classes = {
        name.removesuffix("Error")
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, EmbertideError)
    }
    assert reason in KUBERNETES or reason in classes or reason in literals()


@pytest.mark.parametrize("message", MESSAGES)
def test_every_message_is_said_somewhere(message: str) -> None:
    assert is_said(message)


def test_exit_codes_are_those_of_the_errors() -> None:
    for row in rows("The job has failed"):
        for name in quoted(row[0]):
            kind = vars(errors).get(f"{name}Error") or vars(errors).get(name)
            if kind is not None:
                assert row[1] == str(kind.exit_code), name


def test_what_nobody_says_is_noticed() -> None:
    assert len(MESSAGES) > 25
    assert is_said("… is publishing to …")
    assert not is_said("… is publishing at …")
    assert not is_said("to … is publishing")


def test_links_lead_to_headings() -> None:
    for path in sorted((ROOT / "docs").glob("*.md")):
        for target, anchor in re.findall(r"\]\(([\w.-]*)#([\w-]+)\)", path.read_text()):
            text = (path.parent / target).read_text() if target else path.read_text()
            titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
            anchors = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
            assert anchor in anchors, f"{path.name}: {target}#{anchor}"
