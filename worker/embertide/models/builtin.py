"""Models that need no training, as programs that are made from a job.

- ``fastrp`` (Chen et al., Fast and Accurate Network Embeddings via Very Sparse Random Projection,
  CIKM 2019): with A the weights of edges, D its degrees, R random rows drawn by the nodes' ids,
  b the normalization strength and a_k the iteration weights

      N_0 = D^b R,  N_k = D^-1 A N_(k-1),  out = sum over k of a_k N_k / ||N_k||,

  rows by their own lengths. In a graph of several types A has the edges of all relations. Features
  take the place of a part of R's columns, by a product with a random matrix.
- ``sgc`` (Wu et al. 2019): S^hops X, with S the symmetrically normalised A with self-loops;
- ``sign`` (Frasca et al. 2020): X, S X, ..., S^hops X side by side;
- ``appnp`` (Gasteiger et al. 2019, eq. 4): personalised PageRank of X.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch

from embertide.errors import ModelError
from embertide.kernels.drawn import draw_rows, seed_of
from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.hops import gcn_hop
from embertide.models.folder import Exported, LayerName
from embertide.models.folder_reading import parse_folder
from embertide.models.folder_writing import folder_files
from embertide.models.prune import prune
from embertide.program.steps import Norm, Program
from embertide.spec.model import FastRP, ModelRef
from embertide.spec.relations import Relation

_HOP = gcn_hop(loops=True, edge_weight=True)


@dataclass(frozen=True)
class NodeColumns:
    """Columns of a node type: of its features, and those that are drawn after them."""

    features: int
    drawn: int


def builtin_model(
    model: ModelRef, nodes: Mapping[str, NodeColumns], relations: list[Relation]
) -> Exported:
    """The program of a built-in model.

    Args:
        nodes: node type -> its columns, "" in a graph of one type and one relation.
        relations: all of the graph.

    Raises:
        ModelError: the model needs features, or one node type, or gives a node type nothing.
    """
    name = str(model.builtin)
    if name == "fastrp":
        program, layers = _fastrp(model.fastrp, nodes, relations)
    else:
        program, layers = _propagation(model, nodes)
    files = folder_files(program, layers, name, "torch")
    exported = parse_folder(files.program, files.weights, f"builtin {name}")
    # Edges without weights count 1, which is what the model means.
    return replace(exported, program=replace(exported.program, weights={}))


def _propagation(
    model: ModelRef, nodes: Mapping[str, NodeColumns]
) -> tuple[Program, tuple[LayerName, ...]]:
    """Averages of features within some hops."""
    if list(nodes) != [""]:
        raise ModelError(
            f"builtin {model.builtin} is for a graph of one node type and one edge type; use fastrp"
        )
    width, options = nodes[""].features, model.propagation
    if not width:
        raise ModelError(
            f"builtin {model.builtin} averages features, but spec.input.nodes[0] has none; give it"
            " features, or use fastrp"
        )
    b = ProgramBuilder(width)
    b.begin(reads_edges=True)
    x = b.inputs[""]
    if model.builtin == "sign":
        every = [x]
        for _ in range(options.hops):
            every.append(_HOP.once(b, every[-1]))
        out = b.concat(tuple(every))
    else:
        alpha = options.teleport if model.builtin == "appnp" else 0.0
        out = _HOP.times(b, x, options.hops, alpha=alpha)
    b.finish(out)
    return _program(b, {"": out}, {}), (LayerName("", str(model.builtin), graph=True),)


def _program(
    b: ProgramBuilder, results: dict[str, str], params: dict[str, torch.Tensor]
) -> Program:
    program = Program(
        steps=tuple(b.steps),
        params=params,
        widths=b.widths,
        layers=b.layer + 1,
        inputs=b.inputs,
        results=results,
        outputs=tuple(b.outputs),
    )
    return prune(program)


def _fastrp(
    model: FastRP, nodes: Mapping[str, NodeColumns], relations: list[Relation]
) -> tuple[Program, tuple[LayerName, ...]]:
    if not any(model.iteration_weights):
        raise ModelError("iterationWeights are all 0, so that no edge counts; give one other")
    into = {kind: [r for r in relations if r.destination == kind] for kind in nodes}
    into = {"": relations} if list(nodes) == [""] else into
    bare = [kind for kind, leading in into.items() if not leading]
    if bare and not model.self_weight:
        raise ModelError(
            f"no edge type leads to node type {bare[0]!r}, so that builtin fastrp gives its nodes"
            " zeros; add reverse to an edge type that leads from it, or give selfWeight"
        )
    b = ProgramBuilder({kind: columns.features + columns.drawn for kind, columns in nodes.items()})
    params: dict[str, torch.Tensor] = {}
    x, sums = dict(b.inputs), dict[str, str]()
    for number, weight in enumerate(model.iteration_weights):
        b.begin(reads_edges=True)
        totals = {kind: _degrees(b, kind, leading) for kind, leading in into.items() if leading}
        if number == 0:
            for kind, columns in nodes.items():
                with b.of_type(kind):
                    x[kind] = _first(b, model, kind, columns, totals.get(kind, ()), params)
                    _add(b, sums, kind, x[kind], model.self_weight)
        x = {
            kind: _mean(b, kind, leading, x, totals[kind])
            for kind, leading in into.items()
            if any(_source(kind, relation) in x for relation in leading)
        }
        for kind, mean in x.items():
            with b.of_type(kind):
                _add(b, sums, kind, mean, weight)
        b.finish(dict(x))
    names = (LayerName(f"{at + 1}", "iteration", graph=True) for at in range(b.layer + 1))
    return _program(b, sums, params), tuple(names)


def _source(kind: str, relation: Relation) -> str:
    """The source's type as the program names it."""
    return relation.source if kind else ""


def _over(b: ProgramBuilder, kind: str, relation: Relation) -> AbstractContextManager[None]:
    """Write steps over a relation, which a program of one type does not name."""
    return b.over(relation) if kind else nullcontext()


def _degrees(b: ProgramBuilder, kind: str, leading: list[Relation]) -> tuple[str, ...]:
    """[N, 1] a node type's sums of weights over each relation that leads to it."""
    counts = []
    for relation in leading:
        with _over(b, kind, relation):
            counts.append(b.degree("weight"))
    return tuple(counts)


def _degree_lines(relations: int) -> list[str]:
    """``degree``, the sum of x1, x2, ...; 1 where that is 0."""
    sums = [f"sum{at} = add({'x1' if at == 2 else f'sum{at - 1}'}, x{at})"
            for at in range(2, relations + 1)]  # fmt: skip
    total = f"sum{relations}" if sums else "x1"
    return [*sums, f"none = eq({total}, 0)", f"degree = add({total}, none)"]


def _first(
    b: ProgramBuilder,
    model: FastRP,
    kind: str,
    columns: NodeColumns,
    degrees: tuple[str, ...],
    params: dict[str, torch.Tensor],
) -> str:
    """[N, dimensions] what a node type begins with, N_0."""
    x, read, lines, names = b.inputs[kind], [b.inputs[kind]], list[str](), list[str]()
    if columns.features:
        projected = model.dimensions - columns.drawn
        lines += [f"drawn = narrow(x0, 1, {columns.features}, {columns.drawn})"]
        if projected:
            names = [f"{kind}.projection" if kind else "projection"]
            params[names[0]] = _projection(model, kind, columns.features, projected)
            lines += [
                f"given = narrow(x0, 1, 0, {columns.features})",
                "product = linear(given, p0)",
                "projected = normalize(product, 1)",
                f"first = {'cat([projected, drawn], 1)' if columns.drawn else 'same(projected)'}",
            ]
            lines = lines if columns.drawn else lines[1:]
        else:
            lines += ["first = same(drawn)"]
    if model.normalization_strength and degrees:
        read += degrees
        lines += [] if columns.features else ["first = same(x0)"]
        lines += [
            *_degree_lines(len(degrees)),
            f"power = pow(degree, {model.normalization_strength})",
            "scaled = mul(first, power)",
        ]
    if not lines:
        return x
    lines += ["out = same(scaled)" if len(read) > 1 else "out = same(first)"]
    return b.row_wise(tuple(read), tuple(lines), tuple(names), model.dimensions)


def _projection(model: FastRP, kind: str, features: int, columns: int) -> torch.Tensor:
    """[columns, features] a row of random numbers for each column of the result."""
    numbers = np.arange(features, dtype=np.int64)
    rows = draw_rows(numbers, columns, seed_of(model.seed, f"{kind}.projection"))
    return torch.from_numpy(rows.T.copy())


def _mean(
    b: ProgramBuilder,
    kind: str,
    leading: list[Relation],
    x: dict[str, str],
    degrees: tuple[str, ...],
) -> str:
    """[N, dimensions] the mean over neighbours of all relations that lead to a node type."""
    norm: Norm = "in_weighted" if len(leading) == 1 else "none"
    parts = []
    for relation in leading:
        source = _source(kind, relation)
        if source in x:
            with _over(b, kind, relation):
                parts.append(b.aggregate(x[source], norm=norm, edge_weight=True))
    if len(leading) == 1:
        return parts[0]
    with b.of_type(kind):
        summed = parts[0] if len(parts) == 1 else b.elementwise(tuple(parts), "sum")
        lines = (*_degree_lines(len(degrees)), "out = div(x0, degree)")
        return b.row_wise((summed, *degrees), lines, (), b.widths[summed])


def _add(b: ProgramBuilder, sums: dict[str, str], kind: str, x: str, weight: float) -> None:
    """Add rows of length ``weight`` to what a node type has so far."""
    if not weight:
        return
    with b.of_type(kind):
        rows = b.row_normalize(x)
        before = sums.get(kind)
        if before is not None:
            sums[kind] = b.combine(before, rows, beta=weight)
        else:
            sums[kind] = rows if weight == 1 else b.combine(rows, rows, alpha=weight, beta=0.0)
