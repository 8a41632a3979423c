"""Sums over relations with a weight for each: whole, of bases, or of blocks.

    out_i = sum over r of W_r * reduce over j in N_r(i) of x_j

No weight of a relation is made from bases where fewer products do: a destination type sums its
relations' rows for each basis first (sum over r of a_rb * rows_r, one product for each basis), or,
where results are narrower than inputs, a source type makes its product with each basis first.
Blocks are multiplied as blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from embertide.models.builder import ProgramBuilder
from embertide.models.node_types import NodeTypes
from embertide.models.weights import Scope
from embertide.spec.relations import Relation

Tensors = dict[str, str]
Reduce = Callable[[str], str]
"""Writes the reduction of the neighbours' rows over the relation that is being written."""


@dataclass(frozen=True, kw_only=True)
class RelationWeights:
    """The weights of all relations, in order; exactly one of the three kinds.

    Attributes:
        full: [R, in, out], or [B, in, out] bases where there are ``shares``.
        shares: [R, B] how much of each basis a relation has.
        blocks: [R, B, in / B, out / B] on the diagonal.
    """

    full: Tensor | None = None
    shares: Tensor | None = None
    blocks: Tensor | None = None


@dataclass(frozen=True)
class _Layer:
    """What the functions below write for."""

    b: ProgramBuilder
    s: Scope
    x: Tensors
    relations: tuple[Relation, ...]
    weights: RelationWeights
    reduce: Reduce
    linear: bool

    @property
    def out(self) -> int:
        """Columns of the result."""
        return self.s.size("out")

    def narrow(self) -> bool:
        """Whether products come before sums: their rows together are narrower than the input's."""
        most = max(Counter(one.source for one in self.relations).values())
        return self.linear and self.out * most < self.s.size("in")

    def number(self, relation: Relation) -> int:
        """Its place in the list."""
        return self.relations.index(relation)

    def put(self, name: str, tensor: Tensor) -> str:
        """Add a parameter that is cut from a stored one."""
        return self.s.put(self.s.name(name), tensor)


def relational(
    b: ProgramBuilder,
    s: Scope,
    x: Tensors,
    types: NodeTypes,
    weights: RelationWeights | None,
    reduce: Reduce,
    *,
    linear: bool = True,
) -> dict[str, list[str]]:
    """Destination type -> tensors [N, out] whose sum is that over all relations.

    Args:
        weights: None where they differ from what is expected; widths are then not known.
        linear: a product may stand before the reduction.
    """
    if weights is None:
        return {one.destination: [x[one.source]] for one in types.relations}
    layer = _Layer(b, s, x, types.relations, weights, reduce, linear)
    parts: dict[str, list[str]] = {one.destination: [] for one in types.relations}
    if layer.narrow():
        for relation, made in _products(layer):
            with b.over(relation):
                parts[relation.destination].append(reduce(made))
        return parts
    for destination in parts:
        into = [one for one in types.relations if one.destination == destination]
        rows = []
        for relation in into:
            with b.over(relation):
                rows.append(reduce(x[relation.source]))
        with b.of_type(destination):
            parts[destination] = _combined(layer, into, rows)
    return parts


def _combined(layer: _Layer, relations: Sequence[Relation], rows: Sequence[str]) -> list[str]:
    """Reduced rows [N, in] of several relations times their weights."""
    weights = layer.weights
    if weights.blocks is not None:
        return [_block_product(layer, relations, rows)]
    if weights.shares is not None and len(weights.shares[0]) <= len(relations):
        return [_basis_product(layer, relations, rows)]
    return [
        layer.b.linear(h, _weight(layer, one), layer.out)
        for one, h in zip(relations, rows, strict=True)
    ]


def _products(layer: _Layer) -> list[tuple[Relation, str]]:
    """Rows [N, out] of each relation's source type times its weight."""
    found = []
    for source in dict.fromkeys(one.source for one in layer.relations):
        leaving = [one for one in layer.relations if one.source == source]
        with layer.b.of_type(source):
            found += list(zip(leaving, _products_of(layer, leaving, layer.x[source]), strict=True))
    return sorted(found, key=lambda pair: layer.number(pair[0]))


def _products_of(layer: _Layer, relations: Sequence[Relation], x: str) -> list[str]:
    """One type's rows times the weights of several relations."""
    b, weights = layer.b, layer.weights
    if weights.blocks is not None:
        return [_block_product(layer, [one], [x]) for one in relations]
    if weights.shares is None or len(weights.shares[0]) > len(relations):
        return [b.linear(x, _weight(layer, one), layer.out) for one in relations]
    assert weights.full is not None
    bases = [
        b.linear(x, layer.put(f"basis.{at}", basis.t()), layer.out)
        for at, basis in enumerate(weights.full)
    ]
    lines = (
        f"bases = stack([{_names('x', len(bases))}], 1)",
        "out = einsum('nbd,b->nd', bases, p0)",
    )
    return [
        b.row_wise(tuple(bases), lines, (_shares(layer, [one], flat=True),), layer.out)
        for one in relations
    ]


def _basis_product(layer: _Layer, relations: Sequence[Relation], rows: Sequence[str]) -> str:
    """sum over b of (sum over r of a_rb * rows_r) V_b."""
    bases = layer.weights.full
    assert bases is not None
    beside = layer.put("bases", bases.permute(2, 0, 1).flatten(1))
    lines = (
        f"rows = stack([{_names('x', len(rows))}], 1)",
        "sums = einsum('nrd,rb->nbd', rows, p0)",
        "beside = flatten(sums)",
        "out = linear(beside, p1)",
    )
    shares = _shares(layer, relations)
    return layer.b.row_wise(tuple(rows), lines, (shares, beside), layer.out)


def _block_product(layer: _Layer, relations: Sequence[Relation], rows: Sequence[str]) -> str:
    """The sum over relations of rows times blocks."""
    blocks = layer.weights.blocks
    assert blocks is not None
    _, count, width, _ = blocks.shape
    names = tuple(layer.put(f"blocks.{one}", blocks[layer.number(one)]) for one in relations)
    lines = []
    for at in range(len(rows)):
        lines += [
            f"apart{at} = reshape(x{at}, [{count}, {width}])",
            f"made{at} = einsum('nbc,bcd->nbd', apart{at}, p{at})",
        ]
        lines.append(f"sum{at} = " + (f"add(sum{at - 1}, made{at})" if at else "same(made0)"))
    lines.append(f"out = flatten(sum{len(rows) - 1})")
    return layer.b.row_wise(tuple(rows), tuple(lines), names, layer.out)


def _weight(layer: _Layer, relation: Relation) -> str:
    """A relation's whole weight [out, in], made of its bases where there are some."""
    weights, number = layer.weights, layer.number(relation)
    assert weights.full is not None
    if weights.shares is None:
        whole = weights.full[number]
    else:
        whole = torch.einsum("b,bio->io", weights.shares[number].double(), weights.full.double())
    return layer.put(f"weight.{relation}", whole.t())


def _shares(layer: _Layer, relations: Sequence[Relation], *, flat: bool = False) -> str:
    """[r, B] the shares of some relations in the bases; [B] of one."""
    assert layer.weights.shares is not None
    rows = layer.weights.shares[[layer.number(one) for one in relations]]
    name = "shares." + (str(relations[0]) if flat else relations[0].destination)
    return layer.put(name, rows[0] if flat else rows)


def _names(letter: str, count: int) -> str:
    return ", ".join(f"{letter}{at}" for at in range(count))
