"""The embeddings beside those that readers have: what changed since the current version.

Each rank looks at its rows once, streams what the current version has of the same range of ids, and
keeps counts and a small sample; rank 0 adds them up. Whatever is wrong with the other version is
part of the result, and no error of this run. The job's bounds say whether the version may become
current.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from embertide.context import RunContext
from embertide.engine.planning.inputs import Inputs, input_age
from embertide.errors import EmbertideError
from embertide.facts.telemetry.comparison import Comparison
from embertide.facts.telemetry.omissions import Omissions
from embertide.io.compare.base import Base, current_base
from embertide.io.compare.chain import Chain
from embertide.io.compare.gate import Facts, violations
from embertide.io.compare.previous import Ours, compare
from embertide.io.compare.result import TypeShare, put_together
from embertide.io.compare.rows import KeyedRows, as_published, look_at
from embertide.io.compare.share import Share
from embertide.io.versions.keys import KeyRange, ranges_from
from embertide.kernels.ids import Ids
from embertide.kernels.row_pairs import Values
from embertide.spec.gate import Gate
from embertide.spec.nodes import NodeInput
from embertide.spec.result_names import label_of

_FAILED = "not compared with {version}: {error}"
_BEYOND = "beyond a bound of {whose}: {what}"
_DEFAULT = "the default gate (spec.output.gate sets it)"


class OwnRows(Protocol):
    """Our rows of one result, as they will be written."""

    @property
    def node(self) -> NodeInput:
        """The type."""

    @property
    def key(self) -> str:
        """The key of the result; its node type is "" in a graph of one."""

    @property
    def ids(self) -> Ids:
        """Original ids of our sub-range."""

    @property
    def embeddings(self) -> torch.Tensor:
        """[N/(P*M), D'] float32."""


def compare_rows(
    ctx: RunContext,
    model: str,
    read: dict[str, int],
    types: Sequence[OwnRows],
    chain: Chain | None = None,
) -> Comparison | None:
    """Compare our rows with the current version's; the result is rank 0's.

    Collective: every rank must call.

    Args:
        model: digest of the model that the rows were computed with.
        read: edge type -> rows of its input.
        chain: gets what the delta of our rows has to have.
    """
    if not ctx.job.spec.output.compare:
        return Comparison(state="off") if ctx.grid.rank == 0 else None
    began = time.perf_counter()
    base = _shared_base(ctx)
    keyed = [_keyed(ctx, rows) for rows in types]
    ranges, totals = _share_out(ctx, keyed)
    shares, problem = _own_shares(ctx, base, model, types, keyed, ranges, totals, chain)
    del keyed
    # Rank 0 adds up, so its own share is sent to no one.
    sent = None if ctx.grid.rank == 0 else [[share.to_json() for share in shares], problem]
    received = ctx.exchange.all_objects(sent)[1:]
    if ctx.grid.rank > 0:
        return None
    for others, other_problem in received:
        problem = problem or other_problem
        for share, data in zip(shares, others, strict=True):
            share.add(Share.from_json(data))
    same_model = model == base.model
    if problem:
        base = Base.none("failed", _FAILED.format(version=base.version, error=problem))
    sums = [
        TypeShare(rows.key, rows.embeddings.shape[1], share)
        for rows, share in zip(types, shares, strict=True)
    ]
    found = put_together(base, sums, read, same_model=same_model)
    return replace(found, seconds=time.perf_counter() - began)


def _shared_base(ctx: RunContext) -> Base:
    """The current version, as rank 0 has read it. Collective: every rank must call."""
    mine = current_base(ctx.storage, ctx.job.spec.published_uri) if ctx.grid.rank == 0 else None
    bases = ctx.exchange.all_objects(None if mine is None else mine.to_json())
    return mine or Base.from_json(bases[0])


def _keyed(ctx: RunContext, rows: OwnRows) -> KeyedRows:
    kind = rows.node.ids
    return KeyedRows.of(rows.ids, kind, rows.embeddings.shape[1], _reader(ctx, rows.embeddings))


def _reader(ctx: RunContext, embeddings: torch.Tensor) -> Callable[[int, int], Values]:
    """Reads rows as they are published; from a GPU one caller at a time."""
    dtype, staging, lock = ctx.job.spec.output.dtype, ctx.exchange.staging, threading.Lock()

    def read(first: int, last: int) -> Values:
        if ctx.device.type == "cpu":
            values: Values = embeddings[first:last].numpy()
        else:
            with lock:
                values = staging.download(embeddings[first:last]).numpy()
        return as_published(values, dtype)

    return read


def _share_out(ctx: RunContext, keyed: list[KeyedRows]) -> tuple[list[KeyRange], list[int]]:
    """For each type our range of keys, and the rows of all ranks.

    Collective: every rank must call.
    """
    spans = ctx.exchange.all_objects([[len(rows), rows.start] for rows in keyed])
    by_type = list(zip(*spans, strict=True))
    ranges = [
        ranges_from([None if start is None else tuple(start) for _, start in of_type])
        for of_type in by_type
    ]
    return (
        [of_type[ctx.grid.rank] for of_type in ranges],
        [sum(count for count, _ in of_type) for of_type in by_type],
    )


def _own_shares(
    ctx: RunContext,
    base: Base,
    model: str,
    types: Sequence[OwnRows],
    keyed: list[KeyedRows],
    ranges: list[KeyRange],
    totals: list[int],
    chain: Chain | None,
) -> tuple[list[Share], str]:
    """Our share of each type; and what is wrong with the current version, or ""."""
    problem, shares = "", []
    threads = ctx.threads if ctx.device.type == "cpu" else 1
    for rows, own, keys, total in zip(types, keyed, ranges, totals, strict=True):
        facts, moves = look_at(own, threads), None
        previous = base.previous(ctx.storage, rows.key, rows.node.ids, model)
        travel = None if chain is None else chain.begin(rows.key, own, base, previous)
        if previous is not None and not problem:
            ours = Ours(
                rows=own,
                dtype=ctx.job.spec.output.dtype,
                total=total,
                travel=travel,
            )
            try:
                moves = compare(ours, previous, keys, threads)
            except EmbertideError as error:
                problem = str(error)
        shares.append(Share.of(facts, total, moves))
        ctx.work.add("compare", rows=len(own))
    return shares, problem


@dataclass(frozen=True)
class Verdict:
    """What a gate says of a version.

    Attributes:
        gate: the job's; None where it has none, so that the default bounds warn.
        violations: what is beyond a bound, a sentence for each.
    """

    gate: Gate | None
    violations: list[str]

    @property
    def held(self) -> list[str]:
        """Why the version must not become current; [] where it may."""
        return self.violations if self.gate is not None and self.gate.mode == "hold" else []

    @property
    def warnings(self) -> list[str]:
        """Warnings about a version that becomes current, for the run's user."""
        whose = _DEFAULT if self.gate is None else "spec.output.gate"
        texts = [] if self.held else self.violations
        return [_BEYOND.format(whose=whose, what=text) for text in texts]

    def to_json(self) -> dict[str, Any]:
        """As the version's manifest has it."""
        mode = None if self.gate is None else self.gate.mode
        return {"mode": mode, "violations": self.violations}


def judge(
    ctx: RunContext,
    inputs: Inputs,
    comparison: Comparison,
    omissions: Omissions,
    compared: Mapping[str, dict[str, Any]],
) -> Verdict:
    """Apply the job's gate; rank 0 calls.

    Args:
        compared: key of a result -> how it agrees with the model's reference.
    """
    gate = ctx.job.spec.output.gate
    bounds = gate or Gate()
    if comparison.state == "off":
        return Verdict(gate, [])
    age = None if bounds.max_input_age is None else input_age(ctx.storage, inputs)
    facts = Facts(
        comparison=comparison,
        dropped=list(omissions.dropped_edges),
        reference_errors={label_of(key): of["largest_error"] for key, of in compared.items()},
        input_age=age,
    )
    return Verdict(gate, violations(bounds, facts))
