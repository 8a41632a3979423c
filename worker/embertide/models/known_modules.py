"""How a convolution's options are read from a live module of its library.

An exported module gets the options that ``model.yaml`` would have, and so the same steps as a
described one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from embertide.models.layer import Layer

Read = Callable[[Any], Any]


@dataclass(frozen=True)
class KnownModule:
    """One module of a library.

    An option is read from the module's attribute of the same name, with or without ``_`` before
    it, unless ``read`` has a function for it.

    Attributes:
        options: the class of its layer in ``model.yaml``, which the registry fills in.
        bias: the parameter that is there if the convolution has a bias; "" if it never has.
        read: option -> its value, from the module.
        x: the argument of ``forward`` that has the features.
        weight: the argument that has edge weights; "" if it takes none.
        features: the argument that has features of edges; "" if it takes none.
        earlier: the argument, and option, that is an earlier layer's output; "" if none.
        call_options: arguments of ``forward`` that are options -> why they must be given, or "".
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

    options: type[Layer] = Layer
    bias: str = "bias"
    read: Mapping[str, Read] = field(default_factory=dict)
    x: str = "x"
    weight: str = ""
    features: str = ""
    earlier: str = ""
    call_options: Mapping[str, str] = field(default_factory=dict)
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
            more: options that the call has.

        Raises:
            ValidationError: of pydantic; the module has a value that is not known.
        """
        own = set(self.options.model_fields) - set(Layer.model_fields)
        values = {"conv": self.options.word(), **more}
        if self.bias:
            values["bias"] = self.has_bias(module)
        if self.weight:
            values["edge_weight"] = weighted
        left = frozenset() if featured else self.of_features
        for name in (own | set(self.read)) - set(values) - left:
            if name in self.read:
                values[name] = self.read[name](module)
            elif hasattr(module, name) or hasattr(module, f"_{name}"):
                values[name] = getattr(module, name, getattr(module, f"_{name}", None))
        return self.options.model_validate(values, by_alias=True, by_name=True)


def _at(module: Any, path: str) -> Any:
    """What stands at a dotted path; None where a part of it is missing."""
    for name in path.split("."):
        module = getattr(module, name, None)
    return module
