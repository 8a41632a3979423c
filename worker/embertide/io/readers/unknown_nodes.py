"""Edges whose end is not among the nodes: counted on every rank, then refused or left out by all.

How many may be left out is a share of all edges of an input, so it is known once all ranks have
read theirs. Each keeps the first few that it met, in the order of the files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from embertide.errors import InputError
from embertide.facts.telemetry.format import human_share
from embertide.facts.telemetry.omissions import DroppedEdges
from embertide.io.readers.edges import EdgeBatch
from embertide.io.readers.ids import Mask
from embertide.io.readers.text_hints import id_hint
from embertide.io.readers.where import Where
from embertide.spec.edges import EdgeInput
from embertide.spec.unknown_nodes import UnknownNodes

_EXAMPLES = 3
_ENDS = ("source", "destination")
_FROM_ONE = (
    "Each of these ends is the number of nodes, one more than the last id: the ids seem to begin at"
    " 1, but nodes are rows, which count from 0"
)
_FEW_IDS = 4
_SHOWN_CHARACTERS = 80
"""How much of an id a message shows."""


@dataclass(frozen=True)
class _Example:
    """An edge by its row in a batch, and its end that is no node."""

    where: Where
    row: int
    end: str
    value: Any

    def describe(self, edge: EdgeInput, *, with_line: bool) -> str:
        """The object, the row and the value; the line of a text file is found by reading it."""
        known = with_line or self.where.line_of is None
        place = self.where.row(self.row) if known else self.where.uri
        column = getattr(edge.columns, self.end)
        text = f"{place}: column {column!r} (columns.{self.end}) is {_shown(self.value)}"
        if isinstance(self.value, str):
            text += id_hint(self.value, column)
        if edge.source_type == edge.destination_type:
            return text
        its_type = edge.source_type if self.end == "source" else edge.destination_type
        return f"{text}, no node of type {its_type!r}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]} ..."


@dataclass
class UnknownEnds:
    """Edges of one input, as one rank met them, of which an end is not among the nodes."""

    edges: int = 0
    examples: list[_Example] = field(default_factory=list)
    beyond: set[tuple[str, int]] = field(default_factory=set)
    """Ends, and dense ids beyond the last node's that they have: the first few."""

    def known_of(self, batch: EdgeBatch, sources: Mask | None, ends: Mask | None) -> Mask | None:
        """[n] which edges of a batch have both ends; None for all. Counts the others.

        Args:
            sources, ends: [n] whose source, or destination, is not among the nodes; None for none.
        """
        if sources is None or ends is None:
            unknown = ends if sources is None else sources
        else:
            unknown = sources | ends
        if unknown is None:
            return None
        for end, ids, wrong in zip(
            _ENDS, (batch.source, batch.destination), batch.beyond, strict=True
        ):
            if wrong is not None and len(self.beyond) < _FEW_IDS:
                self.beyond |= {(end, int(i)) for i in np.unique(ids[wrong])[:_FEW_IDS]}
        rows = unknown.nonzero()[0]
        self.edges += len(rows)
        for row in rows[: _EXAMPLES - len(self.examples)].tolist():
            end = "source" if sources is not None and sources[row] else "destination"
            value = (batch.source if end == "source" else batch.destination)[row]
            plain = value.as_py() if hasattr(value, "as_py") else int(value)
            self.examples.append(_Example(batch.where, row, end, plain))
        known: Mask = ~unknown
        return known

    def add(self, later: UnknownEnds) -> None:
        """Count those of a later part of the input, too."""
        self.edges += later.edges
        self.beyond |= later.beyond
        self.examples += later.examples[: _EXAMPLES - len(self.examples)]


def settle(
    gather: Callable[[Any], list[Any]],
    rank: int,
    edge: EdgeInput,
    unknown: UnknownEnds,
    rows: int,
    nodes: Sequence[str],
    counts: tuple[int, int],
    noun: str = "edge",
) -> DroppedEdges | None:
    """Refuse the edges without a node, or say how many all ranks left out; None for none.

    Collective: every rank must call, and all do the same.

    Args:
        gather: an object of every rank, in rank order.
        unknown: those that we met.
        rows: edges that we read.
        nodes: for messages, which nodes there are of either end's type.
        counts: how many nodes there are of either end's type.
        noun: for messages, what a row is.

    Raises:
        InputError: no row is one of the input's (``where``), or they may not be left out, or are
            more than may be.
    """
    found = gather((unknown.edges, rows, len(unknown.examples), sorted(unknown.beyond)))
    total, read = (sum(ours[i] for ours in found) for i in (0, 1))
    if edge.where is not None and not read and not edge.optional:
        where = edge.where
        raise InputError(
            f"{edge.location} has no row in which column {where.column!r} (where.column) is"
            f" {where.equals!r} (where.equals); values are compared exactly, also in case and"
            " blanks: correct it, or set optional: true where there may be none"
        )
    if not total:
        return None
    rule = edge.unknown_nodes or UnknownNodes()
    refused = total > rule.share * read
    before = sum(held for _, _, held, _ in found[:rank])
    shown = unknown.examples[: max(0, _EXAMPLES - before)]
    by_rank = gather([example.describe(edge, with_line=refused) for example in shown])
    examples = [text for ours in by_rank for text in ours]
    beyond = {(end, dense_id) for *_, ids in found for end, dense_id in ids}
    from_one = bool(beyond) and beyond <= set(zip(_ENDS, counts, strict=True))
    if refused:
        raise _refusal(edge, rule, total, read, examples, nodes, noun, from_one=from_one)
    if from_one:
        examples.append(_FROM_ONE)
    return DroppedEdges(str(edge.relation), total, read, examples)


def _refusal(
    edge: EdgeInput,
    rule: UnknownNodes,
    total: int,
    read: int,
    examples: list[str],
    nodes: Sequence[str],
    noun: str,
    *,
    from_one: bool,
) -> InputError:
    have = f"{noun}{'' if read == 1 else 's'} {'has' if total == 1 else 'have'}"
    what, rules = "Correct or drop these rows, or add the nodes there", ""
    if noun == "edge":
        rules = f" ({rule.text})"
    if from_one:
        what = (
            f"{_FROM_ONE}. Subtract 1 from all ids in the {noun}s, or set ids: int64 and give the"
            " features the ids of their rows (idColumn, or idsUri of npy)"
        )
    elif rule.action == "refuse" and noun == "edge":
        what += "; unknownNodes: {action: drop, maxShare: 1%} leaves a few such edges out"
    return InputError(
        f"{edge.location}: {total:,} of {read:,} {have} an end that is not among the nodes,"
        f" {human_share(total, read)}{rules}. {'; '.join(examples)}. There are"
        f" {' and '.join(dict.fromkeys(nodes))}. {what}"
    )
