"""What a job with ``inference.targets`` cannot have beside them."""

from __future__ import annotations

from typing import Protocol

from embertide.spec.base import Problem
from embertide.spec.cel import Rule
from embertide.spec.inference import Inference
from embertide.spec.inputs import Input
from embertide.spec.push import Push
from embertide.spec.refresh import Refresh

_PUSH = (
    "cannot be combined with inference.targets, since an index would serve these nodes alone; push "
    "the versions of all nodes by a job without targets"
)
_PAIRS = (
    "cannot be combined with inference.targets, since pairs read the rows of all nodes; give the "
    "scores a job without targets"
)
_KEEP = (
    "must not be true with inference.targets: the rows of some nodes are nothing to go on from; "
    "omit it"
)
_INCREMENTAL = (
    "must not be incremental with inference.targets, which take no rows over from another version; "
    "omit it"
)
_RESUME = (
    "must not be always with inference.targets, of which no layer is kept; omit it, or set never"
)
_NONE = "!has(self.inference) || !has(self.inference.targets)"
BESIDE_TARGETS_RULES = (
    Rule(f"{_NONE} || !has(self.push)", _PUSH, ".push", "FieldValueForbidden"),
    Rule(f"{_NONE} || !has(self.input.pairs)", _PAIRS, ".input.pairs", "FieldValueForbidden"),
    Rule(f"{_NONE} || !has(self.refresh) || !self.refresh.keep", _KEEP, ".refresh.keep"),
    Rule(
        f"{_NONE} || !has(self.refresh) || self.refresh.mode != 'incremental'",
        _INCREMENTAL,
        ".refresh.mode",
    ),
    Rule(
        f"{_NONE} || !has(self.refresh) || self.refresh.resume != 'always'",
        _RESUME,
        ".refresh.resume",
    ),
)


class Spec(Protocol):
    """The parts of a job that are looked at."""

    @property
    def input(self) -> Input:
        """The graph."""

    @property
    def inference(self) -> Inference:
        """How the embeddings are computed."""

    @property
    def refresh(self) -> Refresh:
        """When they are computed again."""

    @property
    def push(self) -> Push | None:
        """The index that serves them."""


def beside_targets(spec: Spec) -> list[Problem]:
    """What :data:`BESIDE_TARGETS_RULES` refuse."""
    if spec.inference.targets is None:
        return []
    refused = [
        (("push",), _PUSH, spec.push is not None),
        (("input", "pairs"), _PAIRS, spec.input.pairs is not None),
        (("refresh", "keep"), _KEEP, spec.refresh.keep),
        (("refresh", "mode"), _INCREMENTAL, spec.refresh.mode == "incremental"),
        (("refresh", "resume"), _RESUME, spec.refresh.resume == "always"),
    ]
    return [(path, message) for path, message, there in refused if there]
