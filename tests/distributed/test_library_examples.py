"""Models of PyG's and DGL's examples: exported as they are, or refused with the way out.

Export compares each program with the module's own forward in float64, to 1e-9; here grids are
compared with the float64 reference of that program.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

from embertide.errors import ModelError
from embertide.models.dgl_interop import why_no_dgl
from embertide.models.reference import run_typed_reference
from embertide.program.steps import Program
from embertide.tracing.export import export_module
from embertide.tracing.forward.entry import part_of
from embertide.tracing.graph_types import named_types
from embertide.tracing.prove.agreement import TOLERANCE as AGREEMENT
from tests.support.exact import TOLERANCE, relative_error
from tests.support.examples.case import EDGE_FEATURES, Example
from tests.support.models import Files, read_again, shake
from tests.support.plans import order_steps
from tests.support.ranks import on_grid
from tests.support.tasks import embed_all
from tests.support.tiers import share
from tests.support.typed_world import embed_types, expected_of
from tests.support.world import Graph, make_features, make_graph
from tools.pages import examples as examples_page

pytestmark = pytest.mark.distributed

GRIDS = ((1, 1), (2, 1), (1, 2), (2, 2))
EXAMPLES = examples_page.examples()
EXPORTED = [one for one in EXAMPLES if not one.refused]
REFUSED = [one for one in EXAMPLES if one.refused]


def export(example: Example) -> Program:
    module = shake(example.make())
    if example.method:
        module = part_of(module, example.method, "the example")
    options: dict[str, Any] = dict(example.options)
    if "graph" in options:
        options["graph"] = named_types(options["graph"], Files())
    done = export_module(module, **options)
    assert done.proof.largest_error <= AGREEMENT
    return read_again(done)


@pytest.fixture(scope="module")
def programs() -> dict[str, Program]:
    """By the example's name."""
    return {one.name: export(one) for one in EXPORTED}


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Without two self-loops on one node, of whose weights PyG keeps any."""
    whole = make_graph(weighted=True, features=EDGE_FEATURES)
    _, first = np.unique(whole.src * whole.nodes + whole.dst, return_index=True)
    stay = (whole.src != whole.dst) | np.isin(np.arange(len(whole.src)), first)
    assert whole.weight is not None
    assert whole.features is not None
    return Graph(
        whole.src[stay], whole.dst[stay], whole.weight[stay], features=whole.features[stay]
    )


@pytest.mark.parametrize(("p", "m"), GRIDS)
def test_examples_of_one_node_type(
    p: int, m: int, programs: dict[str, Program], graph: Graph, pytestconfig: pytest.Config
) -> None:
    every = {name: program for name, program in programs.items() if "" in program.inputs}
    chosen = share(every, GRIDS.index((p, m)), len(GRIDS), pytestconfig)
    cases = [(program, "own", True) for program in chosen.values()]
    answers = on_grid(p, m, embed_all, {("own", True): graph}, cases)
    errors = {
        name: relative_error(np.concatenate(parts), _expected(chosen[name], graph))
        for name, *parts in zip(chosen, *answers, strict=True)
    }
    assert {name: error for name, error in errors.items() if not error <= TOLERANCE} == {}


def _expected(program: Program, graph: Graph) -> torch.Tensor:
    """[N, D'] float64."""
    edges = [torch.from_numpy(part) for part in (graph.src, graph.dst)]
    carried = torch.from_numpy(graph.weight), torch.from_numpy(graph.features)
    layers = [{"": (*edges, *carried)}] * program.layers
    features = {"": make_features(program.input_width)}
    (rows,) = run_typed_reference(program, layers, features, {"": graph.nodes}).values()
    return rows


@pytest.mark.parametrize(("p", "m"), GRIDS)
def test_examples_of_several_types(
    p: int, m: int, programs: dict[str, Program], pytestconfig: pytest.Config
) -> None:
    every = {name: program for name, program in programs.items() if "" not in program.inputs}
    chosen = share(every, GRIDS.index((p, m)), len(GRIDS), pytestconfig)
    ordered = [order_steps(program, p * m) for program in chosen.values()]
    by_rank = on_grid(p, m, embed_types, ordered)
    for number, (name, program) in enumerate(chosen.items()):
        for key, expected in expected_of(program).items():
            rows = np.concatenate([answers[number][key] for answers in by_rank])
            assert relative_error(rows, expected) <= TOLERANCE, (name, key)


@pytest.mark.parametrize("example", REFUSED, ids=lambda one: one.name)
def test_refusals_say_why(example: Example) -> None:
    with pytest.raises(ModelError, match=re.compile(example.refused, re.DOTALL)):
        export(example)


def test_examples_are_many_and_named_once() -> None:
    names = [one.name for one in EXAMPLES]
    assert len(names) == len(set(names))
    if not why_no_dgl():
        assert len(EXPORTED) >= 60
