"""Plain values of dataclasses, and the way back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import pytest

from embertide.plain import Plain


class Pair(NamedTuple):
    first: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Leaf:
    value: float


@dataclass(frozen=True)
class Named(Plain):
    count: int

    def to_json(self) -> dict[str, Any]:
        return {"howMany": self.count}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["howMany"])


@dataclass(frozen=True, kw_only=True)
class Tree(Plain):
    leaves: list[Leaf]
    by_name: dict[str, list[Leaf]] = field(default_factory=dict)
    one: Leaf | None = None
    pairs: tuple[Pair, ...] = ()
    columns: tuple[int, ...] | None = None
    nested: tuple[tuple[Leaf, ...], ...] = ()
    named: Named | None = None


TREE = Tree(
    leaves=[Leaf(1.0), Leaf(2.0)],
    by_name={"a": [Leaf(3.0)], "b": []},
    one=Leaf(4.0),
    pairs=(Pair(1, ("x",)),),
    columns=(3, 4),
    nested=((Leaf(5.0),), ()),
)


def test_fields_come_back_as_they_were() -> None:
    assert Tree.from_json(TREE.to_json()) == TREE
    back = Tree.from_json(json.loads(json.dumps(TREE.to_json())))
    assert [back.leaves, back.by_name, back.one, back.columns, back.nested] == [
        TREE.leaves,
        TREE.by_name,
        TREE.one,
        TREE.columns,
        TREE.nested,
    ]
    assert isinstance(back.pairs[0], Pair)


def test_what_is_left_out_has_its_default() -> None:
    assert Tree.from_json({"leaves": []}) == Tree(leaves=[])
    with pytest.raises(TypeError, match="leaves"):
        Tree.from_json({})
    with pytest.raises(TypeError, match="unheard"):
        Tree.from_json({"leaves": [], "unheard": 1})


def test_a_class_may_have_another_form_and_objects_stay() -> None:
    assert Tree.from_json({"leaves": [], "named": {"howMany": 3}}).named == Named(3)
    leaf = Leaf(1.0)
    assert Tree.from_json({"leaves": [], "one": leaf}).one is leaf
