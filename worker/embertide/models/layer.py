"""What any layer of ``model.yaml`` may say, whatever its convolution and library.

An option has the name and the default that it has in its own library, since the writer of the file
has the training script at hand. Widths and heads are read from the weights; giving heads only adds
a check.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_args, get_origin

from pydantic import BeforeValidator, Field, model_validator
from torch import Tensor

from embertide.models.norm_options import GraphNorm, LayerNorm
from embertide.models.parts import Activation, Norm, Part, Skip
from embertide.spec.base import FieldProblems

if TYPE_CHECKING:
    from embertide.models.builder import ProgramBuilder
    from embertide.models.ends import Ends
    from embertide.models.weights import Scope

Library = Literal["dgl", "pyg"]
After = Literal["average", "batch_norm", "layer_norm", "graph_norm", "activation", "skip"]
Place = tuple[str | int, ...]
Problems = list[tuple[Place, str]]


def _check_earlier(value: Any) -> Any:
    if value == "input" or (type(value) is int and value >= 0):
        return value
    raise ValueError(f"is {value!r}; must be input, or the number of an earlier layer")


Earlier = Annotated[Literal["input"] | int, BeforeValidator(_check_earlier)]
"""The features, or the number of an earlier layer, whose output it is."""


class Layer(Part):
    """What every layer may have around its convolution."""

    weighted: ClassVar[bool | None] = None
    """Default of edge_weight; None where the convolution takes no edge weights."""
    marks: ClassVar[tuple[str, ...]] = ()
    """Parameter names by which the module is known among the weights."""
    reads_edges: ClassVar[bool] = True
    """Whether the layer reads a layer graph; only such layers have a fanout."""
    has_parameters: ClassVar[bool] = True
    """Whether the module stores parameters, so that it has a prefix and may have a bias."""
    keeps_width: ClassVar[bool] = False
    """Whether its parameters, if any, need not tell the columns: the result has the input's."""
    between_types: ClassVar[bool] = False
    """Whether its edges may lead from one node type to another."""
    target_optional: ClassVar[bool] = False
    """Whether it does without a tensor of the nodes that edges lead to."""
    refused: ClassVar[dict[str, dict[str, str]]] = {}
    """Values of the library's that an option does not have here: option -> value -> why."""
    module: ClassVar[str] = ""
    """The library's own module, for the reference page."""

    conv: str = Field(description="the kind of layer")
    prefix: str | None = Field(
        default=None,
        description="name of the layer's module in the weights, such as `convs.0`; without it, it"
        " is inferred from the parameters' names",
    )
    bias: bool = Field(default=True, description="whether the module has a bias")
    edge_weight: bool | None = Field(
        default=None,
        description="whether stored edge weights multiply the messages; the default is"
        " given with each kind of layer; true also refuses a job whose edges have none",
    )
    batch_norm: Norm = Field(default=None, description="a batch norm in eval mode after it")
    layer_norm: LayerNorm = Field(default=None, description="a layer norm after it")
    graph_norm: GraphNorm = Field(
        default=None, description="a norm after it whose statistics are taken over all nodes"
    )
    activation: Activation | None = Field(default=None, description="an activation after it")
    skip: Skip = Field(default=None, description="a link that adds an earlier tensor")
    order: tuple[After, ...] = Field(
        default=(),
        strict=False,
        description="in which order those given of average (heads), batch_norm, layer_norm,"
        " graph_norm, activation and skip follow, where it is not this order",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        problems: Problems = []
        if self.edge_weight and self.weighted is None:
            message = f"{self.no_edge_weights()}; remove it or say false"
            problems.append((("edge_weight",), message))
        if self.prefix is not None and not self.has_parameters:
            problems.append((("prefix",), f"{self.conv} has no parameters; remove it"))
        given = self.parts_given()
        if self.order and sorted(self.order) != sorted(given):
            names = ", ".join(given) or "nothing"
            message = f"is [{', '.join(self.order)}]; must name what follows the conv: {names}"
            problems.append((("order",), message))
        problems += self.conflicts()
        if problems:
            raise FieldProblems(problems)
        return self

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """Write the convolution's steps.

        Args:
            s: the layer's parameters.
            x: the tensors [N, columns] at both ends of its edges; only a convolution that is
                ``between_types`` gets two.

        Returns:
            The name of its result.
        """
        raise NotImplementedError

    @classmethod
    def word(cls) -> str:
        """The word after ``conv``, the only one that the class allows."""
        (word,) = get_args(cls.model_fields["conv"].annotation)
        return str(word)

    @classmethod
    def fixed_fields(cls) -> set[str]:
        """Fields that may only repeat their default here, so that no message points to them."""
        fixed = set() if cls.has_parameters else {"prefix"}
        if get_origin(cls.model_fields["bias"].annotation) is Literal:
            fixed.add("bias")
        return fixed | {"edge_weight"} if cls.weighted is None else fixed

    def no_edge_weights(self) -> str:
        """Why this convolution takes no edge weights."""
        return f"the library's {self.conv} takes no edge weights"

    def conflicts(self) -> Problems:
        """Options of the convolution that exclude each other."""
        return []

    def earlier(self) -> list[tuple[Place, int]]:
        """The numbers of earlier layers that it reads, each with its place in the layer."""
        source = None if self.skip is None else self.skip.source
        return [(("skip", "from"), source)] if isinstance(source, int) else []

    def known_by(self) -> tuple[str, ...]:
        """What stands after the prefix of such a module, as messages show it."""
        return self.marks

    def found_in(self, names: Mapping[str, Tensor]) -> set[str]:
        """The prefixes under which such a module is stored, by its marks."""
        return {
            name[: -len(mark)].removesuffix(".")
            for mark in self.marks
            for name in names
            if name == mark or name.endswith("." + mark)
        }

    def stores_parameters(self) -> bool:
        """Whether the module has any as it is described."""
        no_weight = getattr(self, "weight", True) is False
        return self.has_parameters and not (no_weight and not self.bias)

    def averages_after(self) -> bool:
        """Whether averaging the heads is a separate part after the convolution."""
        return False

    def types_of(self, have: Iterable[str]) -> list[str]:
        """The node types, among those that have a tensor, that pass through it; others stay."""
        return list(have)

    def parts_given(self) -> list[After]:
        """What follows the convolution, in the usual order."""
        parts: list[tuple[After, object]] = [
            ("average", self.averages_after()),
            ("batch_norm", self.batch_norm is not None),
            ("layer_norm", self.layer_norm is not None),
            ("graph_norm", self.graph_norm is not None),
            ("activation", self.activation is not None),
            ("skip", self.skip is not None),
        ]
        return [name for name, present in parts if present]

    def part_prefixes(self) -> list[str]:
        """Every prefix given for what follows the convolution."""
        given = (self.batch_norm, self.layer_norm, self.graph_norm)
        norms = [norm.prefix for norm in given if norm is not None]
        slopes = None if self.activation is None else self.activation.prefix
        link = None if self.skip is None else self.skip.linear
        return [name for name in (slopes, link, *norms) if name is not None]

    def demands_weights(self, _relation: str) -> bool:
        """Whether the file says that edges of a relation have weights, not a default alone."""
        return self.edge_weight is True

    @property
    def uses_edge_weight(self) -> bool:
        """Whether stored edge weights multiply the messages."""
        return bool(self.weighted) if self.edge_weight is None else self.edge_weight
