"""Which layers may be gone on after: what they are computed from is in their names and key."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from embertide.engine.planning.inputs import layer_key, list_inputs
from embertide.engine.planning.keeping import LEAST_SECONDS, describe_kept, layers_to_keep
from embertide.engine.planning.row_inputs import graph_of
from embertide.footprint import GraphSize
from embertide.io.storage.opening import open_storage
from embertide.program.plans.boundaries import boundaries, boundary_digest
from embertide.program.plans.passes import make_plan
from embertide.program.plans.plan import Plan, Target
from embertide.program.steps import Program
from embertide.program.steps.op import Input, Product, RowActivation
from embertide.spec.edge_columns import EdgeFeatures
from embertide.spec.grid import GridShape
from embertide.spec.identity import digest_of
from embertide.spec.manifest import EmbeddingJob, load_manifest
from tests.support.catalogue import catalogue
from tests.support.paths import ROOT
from tests.support.small_job import SmallJob

THREE = "pyg GraphSAGE-graph_norm"
HERE = Target(grid=GridShape())


@pytest.fixture(scope="module")
def program() -> Program:
    return catalogue()[THREE].program


def digests(program: Program, target: Target = HERE, rows: str = "float32") -> list[str]:
    plan = make_plan(program, target)
    return [boundary_digest(plan, end, rows) for end in boundaries(plan)]


def changed(program: Program, name: str) -> Program:
    """Another bit in one of the parameters."""
    value = program.params[name].clone()
    value.view(torch.int32).view(-1)[0] ^= 1
    return replace(program, params={**program.params, name: value})


def test_a_run_may_begin_where_a_layer_reads_rows_of_others() -> None:
    """What is kept is what later operations read: not the features, which are read again."""
    for name, case in catalogue().items():
        plan = make_plan(case.program, HERE)
        for end in boundaries(plan):
            before = {step.out for op in plan.ops[: end.at] for step in op.steps}
            after = {
                name for op in plan.ops[end.at :] for step in op.steps for name in step.reads()
            }
            later = after | set(case.program.results.values())
            assert set(end.tensors) == before & later, name
            assert {op.steps[0].layer for op in plan.ops[end.at :] if op.steps[0].edges} == set(
                range(end.layer, case.program.layers)
            )


def test_every_model_of_several_layers_has_an_end_of_each() -> None:
    for case in catalogue().values():
        ends = boundaries(make_plan(case.program, HERE))
        assert [end.layer for end in ends] == list(range(1, case.program.layers))


def test_a_name_is_of_the_steps_and_weights_up_to_the_layer(program: Program) -> None:
    usual = digests(program)
    assert len({*usual}) == len(usual) == 2
    first, *_, last = program.params
    assert [a == b for a, b in zip(usual, digests(changed(program, first)), strict=True)] == [
        False, False
    ]  # fmt: skip
    assert digests(changed(program, last)) == usual


def test_a_name_has_the_type_of_rows_and_the_grid_only_where_bits_depend_on_it(
    program: Program,
) -> None:
    slices = Target(grid=GridShape.of(2, 2))
    others = Target(grid=GridShape.of(4, 1))
    assert digests(program, slices) == digests(program, others)
    rounded = digests(program, slices, "bfloat16")
    assert not {*rounded} & {*digests(program, slices)}
    assert not {*rounded} & {*digests(program, others, "bfloat16")}


def test_a_name_is_of_no_class_or_module(program: Program) -> None:
    usual = digests(program)
    ops = make_plan(program, HERE).ops
    products = (op.product for op in ops if op.product is not None)
    parts = {type(part) for part in (*ops, *program.steps, *products)}
    assert {kind.__qualname__ for kind in parts} >= {"Op", "Aggregate", "Linear", "Product"}
    names = [(kind.__qualname__, kind.__module__) for kind in parts]
    try:
        for kind in parts:
            kind.__qualname__, kind.__module__ = "Other", "elsewhere"
        assert digests(program) == usual
    finally:
        for kind, (name, module) in zip(parts, names, strict=True):
            kind.__qualname__, kind.__module__ = name, module


def test_a_name_is_of_each_field_of_a_step_and_what_it_means(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = {type(step): step for case in catalogue().values() for step in case.program.steps}
    assert len(steps) > 15
    for kind, step in steps.items():
        known = {digest_of(step)}
        for one in fields(kind):
            other: dict[str, Any] = {one.name: another(getattr(step, one.name))}
            known.add(digest_of(replace(step, **other)))
        monkeypatch.setattr(kind, "meaning", 2)
        known.add(digest_of(step))
        assert len(known) == len(fields(kind)) + 2, kind


def another(value: object) -> object:
    """Another value that a field may have."""
    match value:
        case bool():
            return not value
        case float():
            return math.nextafter(value, math.inf)
        case int():
            return value + 1
        case str():
            return f"{value}2"
        case tuple():
            return (*value, *value[:1]) if value else ("y",)
        case None:
            return "y"
    raise AssertionError(value)


def test_a_name_is_of_what_an_operation_computes_not_of_where(program: Program) -> None:
    (op, *_) = make_plan(program, HERE).ops
    others: dict[str, Any] = {
        "inputs": (Input("y", "tile"),),
        "layout": "tile",
        "frees": frozenset({"y"}),
        "reuses": "y",
        "brings": op.steps,
        "scales": True,
        "adds_last": True,
    }
    for name, value in others.items():
        assert replace(op, **{name: value}) != op
        assert digest_of(replace(op, **{name: value})) == digest_of(op)
    what: dict[str, Any] = {
        "steps": (*op.steps, *op.steps),
        "leader": None,
        "product": Product("w", None, 0),
        "shift": "b",
        "activation": RowActivation("relu", 0.0),
        "reader": program.steps[-1],
        "onto": "y",
        "part": not op.part,
    }
    assert {*others, *what} == {one.name for one in fields(op)}
    digests = {digest_of(replace(op, **{name: value})) for name, value in what.items()}
    assert len(digests | {digest_of(op)}) == len(what) + 1


class _Unnamed:
    pass


def test_what_has_no_identity_is_refused() -> None:
    for value in (_Unnamed(), {1: 2}, {1}, torch.zeros(1)):
        with pytest.raises(TypeError, match="has no identity"):
            digest_of([value])


@pytest.mark.tier(2)
def test_a_name_is_the_same_in_every_process(program: Program) -> None:
    code = (
        "import json;from tests.unit.test_layer_keys import THREE, digests;"
        "from tests.support.catalogue import catalogue;"
        "print(json.dumps(digests(catalogue()[THREE].program)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == digests(program)


@pytest.fixture
def job(tmp_path: Path) -> SmallJob:
    return SmallJob.make(tmp_path)


def key_of(job: SmallJob) -> str:
    loaded = load_manifest(Path(job.manifest))
    return layer_key(loaded, list_inputs(open_storage(None), loaded))


def _edges(job: SmallJob) -> None:
    job.edges.touch()


def _features(job: SmallJob) -> None:
    job.features.write_bytes(job.features.read_bytes())


@pytest.mark.parametrize("change", [_edges, _features])
def test_the_key_is_of_the_inputs(change: Callable[[SmallJob], None], job: SmallJob) -> None:
    before = key_of(job)
    assert key_of(job) == before
    change(job)
    assert key_of(job) != before


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"workers__grid": {"graph": 2, "feature": 2}, "output__uri": "elsewhere/"}, True),
        ({"refresh__resume": "always", "inference__groupBytes": 8192}, True),
        ({"inference__rows": "bfloat16"}, False),
        ({"inference__fanout": [2, 2]}, False),
        ({"workers__device": "cuda"}, False),
    ],
)
def test_the_key_is_of_what_a_job_computes(
    changes: dict[str, object], same: bool, job: SmallJob
) -> None:
    before = key_of(job)
    job.write_manifest(**changes)
    assert (key_of(job) == before) is same


def graph_digest(job: SmallJob, nodes: object = 1) -> str:
    loaded = load_manifest(Path(job.manifest))
    inputs = list_inputs(open_storage(None), loaded)
    (edge,) = loaded.spec.input.edges
    every = {edge.source_type: nodes, edge.destination_type: nodes}
    return graph_of(inputs, edge, every).digest


def test_a_graph_is_of_its_edges_and_nodes_alone(job: SmallJob) -> None:
    before = graph_digest(job)
    _features(job)
    job.write_manifest(inference__rows="bfloat16", inference__fanout=[2, 2])
    assert graph_digest(job) == before
    assert graph_digest(job, nodes=2) != before
    _edges(job)
    assert graph_digest(job) != before


@pytest.mark.parametrize(
    ("field", "same"),
    [
        ({"minEdges": 1}, True),
        ({"directed": False}, False),
        ({"duplicates": "remove"}, False),
        ({"selfLoops": "remove"}, False),
        ({"unknownNodes": {"action": "drop"}}, False),
    ],
)
def test_a_graph_is_of_what_a_job_says_of_its_edges(
    field: dict[str, object], same: bool, job: SmallJob
) -> None:
    before = graph_digest(job)
    data = yaml.safe_load(Path(job.manifest).read_text())
    data["spec"]["input"]["edges"][0] |= field
    Path(job.manifest).write_text(yaml.safe_dump(data))
    assert (graph_digest(job) == before) is same


def test_a_graph_is_of_the_features_that_the_model_reads(job: SmallJob) -> None:
    loaded = load_manifest(Path(job.manifest))
    inputs, (edge,) = list_inputs(open_storage(None), loaded), loaded.spec.input.edges
    some, nodes = replace(inputs, edge_features={str(edge.relation): 1}), {edge.source_type: 1}
    featured = edge.model_copy(update={"features": EdgeFeatures(columns=["x"])})
    digests = {graph_of(some, of, nodes).digest for of in (edge, featured)}
    assert len(digests) == 2
    turned = edge.model_copy(update={"reverse": "back"})
    assert graph_of(inputs, turned, nodes).digest == graph_of(inputs, edge, nodes).digest


def test_a_graph_is_of_the_categories_that_its_edges_may_have(job: SmallJob) -> None:
    loaded = load_manifest(Path(job.manifest))
    inputs, (edge,) = list_inputs(open_storage(None), loaded), loaded.spec.input.edges
    nodes = {edge.source_type: 1}
    some = replace(inputs, edge_categories={str(edge.relation): [(0, 3)]})
    more = replace(inputs, edge_categories={str(edge.relation): [(0, 4)]})
    assert graph_of(some, edge, nodes).digest != graph_of(more, edge, nodes).digest


def planned(program: Program, edges: int, resume: str = "auto") -> list[bool]:
    """Whether each layer is kept, of a graph of a million nodes."""
    return [layer.kept for layer in _layers(program, edges, resume)]


def _layers(program: Program, edges: int, resume: str):  # type: ignore[no-untyped-def]
    plan: Plan = make_plan(program, HERE)
    size = GraphSize(
        nodes={"": 1_000_000}, edges={"": edges}, grid=GridShape(), group_bytes=1 << 20, depth=1
    )
    return layers_to_keep(
        plan,
        size,
        None,
        [],
        resume=resume,  # type: ignore[arg-type]
        rounded=False,
        cores=2,
    )


def test_layers_are_kept_where_writing_them_takes_a_tenth_of_computing_them(
    program: Program,
) -> None:
    assert planned(program, 10_000_000) == [False, False]
    assert planned(program, 100_000_000_000) == [True, True]
    assert planned(program, 10_000_000, "always") == [True, True]
    assert planned(program, 100_000_000_000, "never") == [False, False]
    for layer in _layers(program, 100_000_000_000, "auto"):
        assert layer.seconds <= 0.1 * layer.saved_seconds
        assert layer.saved_seconds >= LEAST_SECONDS


def test_a_layer_that_is_not_kept_counts_for_the_next(program: Program) -> None:
    few = _layers(program, 10_000_000, "auto")
    assert few[1].saved_seconds > few[0].saved_seconds > 0
    always = _layers(program, 10_000_000, "always")
    assert always[1].saved_seconds < few[1].saved_seconds


def test_a_plan_tells_what_is_kept_and_why(program: Program) -> None:
    (note,) = describe_kept(_layers(program, 100_000_000_000, "auto"), "auto")
    assert note.startswith("kept below the output, for an attempt that follows a failed one: after")
    assert "layer 1, 2, " in note
    (note,) = describe_kept(_layers(program, 10_000_000, "auto"), "auto")
    assert note.startswith("no layer is kept for a next attempt (refresh.resume: auto): writing")
    assert describe_kept(_layers(program, 10_000_000, "never"), "never") == []


def test_where_nothing_is_known_of_the_seconds_nothing_is_kept(program: Program) -> None:
    plan, size = make_plan(program, HERE), GraphSize(
        nodes={"": 1}, edges={"": 1}, grid=GridShape(), group_bytes=1, depth=1
    )  # fmt: skip
    layers = layers_to_keep(plan, size, None, [], resume="auto", rounded=False, cores=None)
    assert [layer.kept for layer in layers] == [False, False]


def test_the_command_line_overrides_the_manifest(job: SmallJob) -> None:
    loaded: EmbeddingJob = load_manifest(Path(job.manifest))
    assert loaded.spec.refresh.resume == "auto"
    forced = loaded.resuming("never").forced()
    assert (forced.spec.refresh.mode, forced.spec.refresh.resume) == ("full", "never")
