"""The nodes whose embeddings alone are wanted (``inference.targets``): read, and located."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from embertide.context import RunContext
from embertide.engine.planning.inputs import Inputs
from embertide.errors import InputError
from embertide.graph.exchange import any_rank
from embertide.graph.node_ids import Dense, Nodes, described
from embertide.io.readers.nodes import read_nodes
from embertide.io.readers.splits import assign_splits
from embertide.io.readers.where import Where
from embertide.kernels.ids import Ids
from embertide.spec.targets import Targets

PRIMITIVE = "targets"
"""Under which the transfers are counted."""
_EXAMPLES = 3
_SHOWN_CHARACTERS = 80
"""How much of an id a message shows."""


@dataclass
class _Unknown:
    """Ids that are no nodes, as one rank met them: how many, and the first few."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def note(self, where: Where | None, ids: Ids, dense: Dense) -> None:
        """Look at a batch.

        Args:
            where: its rows; None: the manifest has the ids.
        """
        rows = np.flatnonzero(dense < 0)
        self.count += len(rows)
        for row in rows[: _EXAMPLES - len(self.examples)].tolist():
            place = "spec.inference.targets.ids" if where is None else where.row(row)
            self.examples.append(f"{place}: {_shown(ids[row])}")


def _shown(value: Any) -> str:
    text = repr(value.as_py() if hasattr(value, "as_py") else int(value))
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]} ..."


def read_chosen(ctx: RunContext, inputs: Inputs, nodes: Nodes) -> torch.Tensor | None:
    """[N] bool, the nodes of a type that are wanted, the same on every rank; None: all are.

    Collective: every rank must call.

    Args:
        nodes: of the type whose embeddings are published.

    Raises:
        InputError: an id is no node: how many are not, and the first few by object and row; or
            there are no ids.
    """
    targets = ctx.job.spec.inference.targets
    if targets is None:
        return None
    chosen, unknown, rows = torch.zeros(nodes.ids.count, dtype=torch.bool), _Unknown(), 0
    batches = ((batch, [batch[1]]) for batch in _batches(ctx, inputs, targets, nodes))
    for (where, ids), (dense,) in nodes.ids.find_all(batches):
        rows += len(ids)
        unknown.note(where, ids, dense)
        chosen[torch.from_numpy(dense[dense >= 0].astype(np.int64))] = True
    _refuse(ctx, targets, nodes, rows, unknown)
    return any_rank(ctx.exchange, chosen, PRIMITIVE)


def _batches(
    ctx: RunContext, inputs: Inputs, targets: Targets, nodes: Nodes
) -> Iterator[tuple[Where | None, Ids]]:
    """Our share of the ids: of a table its rows, of the manifest's all on rank 0."""
    kind = nodes.node.ids
    if targets.table is not None:
        for split in assign_splits(inputs.targets, ctx.grid.world)[ctx.grid.rank]:
            for batch in read_nodes(ctx.storage, targets.table, kind, split):
                yield batch.where, batch.ids
    elif ctx.grid.rank == 0:
        yield None, _as_ids(targets, nodes)


def _as_ids(targets: Targets, nodes: Nodes) -> Ids:
    """The ids of the manifest.

    Raises:
        InputError: they are of another kind than the nodes'.
    """
    text, given = nodes.node.ids == "string", targets.ids or []
    other = [item for item in given if isinstance(item, str) != text]
    if other:
        kind = "text" if text else "whole numbers"
        raise InputError(
            f"spec.inference.targets.ids has {other[0]!r}, but ids of {nodes.node.name!r} are"
            f" {kind}"
        )
    return pa.array(given, pa.large_string()) if text else np.array(given, np.int64)


def _refuse(ctx: RunContext, targets: Targets, nodes: Nodes, rows: int, unknown: _Unknown) -> None:
    """Raise on every rank where any has an id that is no node, or none has ids.

    Collective: every rank must call.
    """
    gathered = ctx.exchange.all_objects((rows, unknown.count, unknown.examples))
    total, count = (sum(of_rank[at] for of_rank in gathered) for at in (0, 1))
    if not total:
        raise InputError(
            f"{targets.location} has no ids (spec.inference.targets), so that nothing would be"
            " computed; write the ids that are wanted, or omit targets for all nodes"
        )
    if count:
        examples = [text for _, _, texts in gathered for text in texts][:_EXAMPLES]
        more = f" and {count - len(examples)} more" if count > len(examples) else ""
        raise InputError(
            f"{count} of {total} ids of spec.inference.targets are no nodes: {'; '.join(examples)}"
            f"{more}. There are {described(nodes)}; drop these ids, or correct them"
        )
