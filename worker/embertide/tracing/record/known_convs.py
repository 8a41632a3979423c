"""How a known convolution is told from a live module: what its options are, and where.

The steps are those of `embertide.models.convs`, by the options that ``model.yaml`` would have, so
a described and an exported model run alike. The tables are `pyg.convs` and `dgl.convs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from embertide.models.options.layer import Layer

Told = Callable[[Any], Any]


@dataclass(frozen=True)
class Conv:
    """One convolution of a library.

    An option is read from the module's attribute of the same name, with or without ``_`` before
    it, unless ``told`` says how.

    Attributes:
        options: the class of what ``model.yaml`` says of it.
        bias: the parameter that is there if the convolution has a bias; "" if it never has.
        told: option -> what it is, from the module.
        x: the argument of ``forward`` that has the features.
        weight: the argument that has edge weights; "" if it takes none.
        features: the argument that has features of edges; "" if it takes none.
        earlier: the argument, and option, that is an earlier layer's output; "" if none.
        given: arguments of ``forward`` that are options -> why they must be given, or "".
        after: attributes that hold functions applied to the result, in this order.
        matrix: the argument that takes the place of a module's own weight; "" if it takes none.
        columns: the option that says how many; "" if it is written by its messages with them.
        projection: the attribute by which features of edges are read; a module without it passes
            them over.
        of_features: options that mean nothing where it reads no features of edges.
        one_frame: its graph has one tensor of both ends by the same name; within a node type the
            one of the destinations takes the place of the other.
        by_messages: whether a module has what its steps have not, and messages of any kind say.
        problem: what a module has that cannot be run; "" if nothing.
    """

    options: type[Layer]
    bias: str = "bias"
    told: Mapping[str, Told] = field(default_factory=dict)
    x: str = "x"
    weight: str = ""
    features: str = ""
    earlier: str = ""
    given: Mapping[str, str] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    matrix: str = ""
    columns: str = ""
    projection: str = ""
    of_features: frozenset[str] = frozenset()
    one_frame: bool = False
    by_messages: Callable[[Any], bool] = lambda _module: False
    problem: Callable[[Any], str] = lambda _module: ""

    def has_bias(self, module: Any) -> bool:
        """Whether a module adds one to its result."""
        return bool(self.bias) and _at(module, self.bias) is not None

    def projects(self, module: Any) -> bool:
        """Whether a module reads features of edges."""
        return bool(self.projection) and getattr(module, self.projection, None) not in (None, 0)

    def options_of(self, module: Any, weighted: bool, featured: bool, **more: Any) -> Layer:
        """What ``model.yaml`` would say of a module.

        Args:
            weighted: whether it is given edge weights.
            featured: whether it reads features of edges that it is given.
            more: options that the call tells.

        Raises:
            ValidationError: of pydantic; the module has a value that is not known.
        """
        own = set(self.options.model_fields) - set(Layer.model_fields)
        values = {"conv": _word(self.options), **more}
        if self.bias:
            values["bias"] = self.has_bias(module)
        if self.weight:
            values["edge_weight"] = weighted
        left = frozenset() if featured else self.of_features
        for name in (own | set(self.told)) - set(values) - left:
            if name in self.told:
                values[name] = self.told[name](module)
            elif hasattr(module, name) or hasattr(module, f"_{name}"):
                values[name] = getattr(module, name, getattr(module, f"_{name}", None))
        return self.options.model_validate(values, by_alias=True, by_name=True)


def _word(options: type[Layer]) -> str:
    """The word after ``conv``, the only one that the class allows."""
    (word,) = options.model_fields["conv"].annotation.__args__  # type: ignore[union-attr]
    return str(word)


def _at(module: Any, path: str) -> Any:
    """What stands at a dotted path; None where a part of it is missing."""
    for name in path.split("."):
        module = getattr(module, name, None)
    return module
