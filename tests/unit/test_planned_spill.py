"""Plans of tensors in parts are what runs take: parts in memory, what is stored, what moves."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from embertide.engine.planning.layer_memory import CHUNKS_BYTES, spilled_costs
from embertide.facts.telemetry.recorder import NullRecorder
from embertide.footprint import GraphSize
from embertide.graph.exchange import Exchange
from embertide.graph.graph import LayerGraph
from embertide.grid import Grid, RowRanges
from embertide.kernels import host_store
from embertide.kernels.csr import Csr
from embertide.kernels.host_store import HostStore, HostTensor
from embertide.layouts import Loaded
from embertide.program.plans.passes import make_plan
from embertide.program.plans.plan import Plan, Target
from embertide.program.plans.spilled_run import Spilled
from embertide.program.steps import Activation, Aggregate, Linear, Program, Propagate, Step
from embertide.program.steps.execution import Execution
from embertide.program.steps.tensors import Tensors
from embertide.spec.grid import GridShape
from tests.support.late_lanes import LateLanes
from tests.support.measured import Measured

NODES, EDGES, BATCH = 1 << 18, 4, 1 << 16


def program(*steps: Step, **widths: int) -> Program:
    params = {
        step.weight: torch.zeros(widths[step.out], widths[step.x])
        for step in steps
        if isinstance(step, Linear)
    }
    return Program(steps=steps, params=params, widths=widths, layers=1)


SUM = program(Aggregate(out="out", layer=0, x="x"), x=6, out=6)
"""In two panels of its features, of which the second is half as wide."""
SUMS = program(
    Propagate(out="s", layer=0, x="x", times=3),
    Linear(out="p", layer=0, x="s", weight="w"),
    Activation(out="out", layer=0, x="p", kind="relu"),
    x=20,
    s=20,
    p=7,
    out=7,
)
"""In five panels, and then in blocks of rows."""


@pytest.mark.parametrize("of", [SUM, SUMS], ids=["two panels", "five panels"])
def test_a_run_takes_what_was_planned(of: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small beside a panel.
    monkeypatch.setattr(host_store, "CHUNK_BYTES", BATCH)
    plan = make_plan(of, Target(grid=GridShape(), panel=4))
    size = GraphSize(
        nodes={"": NODES},
        edges={"": NODES * EDGES},
        grid=GridShape(),
        group_bytes=BATCH,
        depth=1,
    )
    planned = spilled_costs(plan, size, placed=(), staged=True)
    with Measured() as measured:
        store = _Store(LateLanes(()), measured=measured)
        run(plan, store, measured)
    assert (store.read, store.written, store.most) == (planned.read, planned.written, planned.disk)
    parts = planned.memory - CHUNKS_BYTES
    assert 0.95 * parts <= measured.peak <= 1.01 * parts


@dataclass
class _Store(HostStore):
    """Tensors in host memory, which are left out of what is measured."""

    measured: Measured | None = None

    def empty(self, rows: int, width: int, panel: int | None = None) -> HostTensor:
        assert self.measured is not None
        peak = self.measured.peak
        made = super().empty(rows, width, panel)
        self.measured.leave_out(made.data)
        self.measured.peak = peak
        return made


def run(plan: Plan, store: HostStore, measured: Measured) -> None:
    """All operations, over a graph in which a node has itself as each neighbour."""
    exchange = Exchange(Grid(GridShape()), torch.device("cpu"), NullRecorder())
    ranges, own = RowRanges((0, NODES), 1), plan.program
    sources = torch.arange(NODES).repeat_interleave(EDGES).to(torch.int32)
    csr = Csr(0, torch.arange(NODES + 1) * EDGES, sources)
    graph = LayerGraph(
        exchange=exchange,
        targets=ranges,
        origins=ranges,
        csr=csr,
        group_rows=1,
        pair_rows=1,
        needs=own.edge_needs(""),
    )
    file, ids = store.empty(NODES, own.widths["x"]), torch.arange(NODES)
    file.write_rows(0, torch.zeros(NODES, own.widths["x"]))
    tensors = Tensors(
        exchange, own, {"": ranges}, {"": Loaded(ids, file.data)}, {}, batch_bytes=BATCH
    )
    execution = Execution(
        exchange=exchange,
        program=own,
        ranges={"": ranges},
        graphs=lambda _layer, _relation: graph,
        tensors=tensors,
        locations={},
        depth=1,
        row_type=torch.float32,
        reads_all=True,
        scaled={op.out for op in plan.ops if op.scales},
    )
    for kept in (ids, csr.indptr, csr.cols):
        measured.leave_out(kept)
    spilled = Spilled(execution, plan, store)
    measured.peak = 0
    for at in range(len(plan.ops)):
        spilled.run(at)
    spilled.results()
