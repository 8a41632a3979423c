"""Non-zeros cut into a local block and groups, against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embertide.kernels import cut
from embertide.kernels.block import Block
from embertide.kernels.csr import Csr
from embertide.kernels.cut import cut_by_group

Entry = tuple[int, int, float, int]
"""Output row, source row, weight, position in the CSR."""


@st.composite
def cuts(draw: st.DrawFn) -> tuple[Csr, torch.Tensor, int, int]:
    """A CSR, the table of slots (or rows of ours), slots per group, and slots in all."""
    nodes = draw(st.integers(1, 25))
    rows = draw(st.lists(st.lists(st.integers(0, nodes - 1), max_size=8), min_size=1, max_size=12))
    cols = torch.tensor([c for row in rows for c in row], dtype=torch.int32)
    indptr = torch.tensor(np.concatenate([[0], np.cumsum([len(r) for r in rows])]))
    weights = torch.arange(len(cols)).float() + 0.5 if draw(st.booleans()) else None
    local = draw(st.lists(st.booleans(), min_size=nodes, max_size=nodes))
    used = set(cols.tolist())
    table = torch.zeros(nodes, dtype=torch.int32)
    unique = 0
    for node in draw(st.permutations(range(nodes))):
        if local[node]:
            table[node] = -1 - node * 2
        elif node in used:
            table[node] = unique
            unique += 1
    return Csr(0, indptr, cols, weights), table, draw(st.integers(1, 7)), unique


def entries(block: Block) -> list[Entry]:
    lengths = block.indptr.diff()
    rows = torch.arange(len(lengths)) if block.rows is None else block.rows
    row = torch.repeat_interleave(rows, lengths).tolist()
    weight = [1.0] * block.nnz if block.weights is None else block.weights.tolist()
    edges = list(range(block.nnz)) if block.edges is None else block.edges.tolist()
    return list(zip(row, block.indices.tolist(), weight, edges, strict=True))


@pytest.mark.parametrize("span", [3, 1 << 20])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cuts())
def test_every_non_zero_is_in_its_group(
    monkeypatch: pytest.MonkeyPatch, span: int, case: tuple[Csr, torch.Tensor, int, int]
) -> None:
    monkeypatch.setattr(cut, "SPAN", span)
    csr, table, group_rows, unique = case
    blocks = cut_by_group(csr, table, group_rows, unique, edges=True)
    expected: list[list[Entry]] = [[] for _ in range(-(-unique // group_rows) + 1)]
    for at, (row, col) in enumerate(zip(csr.row_ids().tolist(), csr.cols.tolist(), strict=True)):
        slot = int(table[col])
        weight = 1.0 if csr.weights is None else float(csr.weights[at])
        if slot < 0:
            expected[0].append((row, -1 - slot, weight, at))
        else:
            expected[slot // group_rows + 1].append((row, slot % group_rows, weight, at))
    assert [entries(block) for block in blocks] == expected
    assert blocks[0].rows is None
    assert len(blocks[0].indptr) == csr.rows + 1
    for block in blocks[1:]:
        assert block.indptr.diff().min() > 0
        assert block.rows.diff().min() > 0 if len(block.rows) > 1 else True
