"""The delta of the version against the one before, written beside its parts (`spec.output.delta`).

What comparing has noted of our rows is written as parts of our own; rank 0 puts all ranks' parts
into the manifest. A version that cannot be compared with the one before has no delta, and the
manifest has the reason: its readers begin again with the version in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch.distributed as dist

from embertide.context import RunContext
from embertide.errors import EmbertideError
from embertide.facts.telemetry.comparison import COMPARED, Comparison
from embertide.io.compare.chain import Chain, describe
from embertide.kernels.ids import Ids
from embertide.spec.nodes import NodeInput
from embertide.spec.result_names import label_of


class OwnRows(Protocol):
    """Our rows of one result, whose paths comparing has noted."""

    @property
    def node(self) -> NodeInput:
        """The type."""

    @property
    def key(self) -> str:
        """The key of the result."""

    @property
    def ids(self) -> Ids:
        """Original ids of our sub-range."""


class PeerFailed(dist.DistError):
    """Another rank could not write its parts of the delta."""


def begin_chain(ctx: RunContext) -> Chain | None:
    """What comparing notes for a delta; None where the job wants none."""
    output = ctx.job.spec.output
    return None if output.delta is None else Chain(output.delta.tolerance, output.dtype)


def write_deltas(
    ctx: RunContext,
    uri: str,
    results: Sequence[OwnRows],
    chain: Chain | None,
    comparison: Comparison | None,
) -> dict[str, dict[str, Any]]:
    """Key of a result -> its delta, as the manifest has it. Collective: every rank must call.

    Args:
        uri: of the version.
        comparison: rank 0's; None on the others.

    Raises:
        OutputError, StorageError: a part of ours could not be written.
        PeerFailed: another rank's could not.
    """
    if chain is None:
        return {}
    why = _why_none(ctx, comparison)
    if why:
        return {rows.key: {"why": why} for rows in results}
    failed: EmbertideError | None = None
    own: dict[str, Any]
    try:
        written = {rows.key: _write(ctx, uri, rows, chain) for rows in results}
        own = {"parts": {key: parts for key, parts in written.items() if parts is not None}}
    except EmbertideError as error:
        own, failed = {"error": str(error)}, error
    answers = ctx.exchange.all_objects(own)
    if failed is not None:
        raise failed
    for rank, answer in enumerate(answers):
        if "error" in answer:
            raise PeerFailed(f"worker {rank}: {answer['error']}")
    return {rows.key: _described(chain, rows.key, answers) for rows in results}


def _why_none(ctx: RunContext, comparison: Comparison | None) -> str:
    """Why no result has a delta, or "", on every rank. Collective: every rank must call."""
    mine = None
    if comparison is not None and comparison.state != COMPARED:
        mine = comparison.why or "there is no version before"
    return next(filter(None, ctx.exchange.all_objects(mine)), "")


def _write(ctx: RunContext, uri: str, rows: OwnRows, chain: Chain) -> Any:
    if rows.key not in chain.travels:
        return None
    label, kind = label_of(rows.key), rows.node.ids
    return chain.write(ctx.storage, uri, label, rows.key, rows.ids, kind, ctx.grid.rank)


def _described(chain: Chain, key: str, answers: list[dict[str, Any]]) -> dict[str, Any]:
    if key not in chain.travels:
        return {"why": chain.why[key]}
    by_rank = [answer["parts"][key] for answer in answers]
    return describe(chain.base, chain.tolerance, by_rank)
