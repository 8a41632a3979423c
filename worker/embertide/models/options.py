"""What a layer of ``model.yaml`` may say, one class for each convolution of each library.

An option has the name and the default that it has in its own library, since whoever writes the
file has the training script at hand. Widths and heads are read from the weights; giving heads
only adds a check.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from embertide.models.program import ActivationKind
from embertide.spec.base import FieldProblems

Library = Literal["dgl", "pyg"]


class Part(BaseModel):
    """Base of everything in ``model.yaml``: unknown fields are refused, ``"4"`` is no number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


def _short(field: str) -> BeforeValidator:
    """Let ``name`` stand for ``{field: name}``."""
    return BeforeValidator(lambda value: {field: value} if isinstance(value, str) else value)


def _switch(value: Any) -> Any:
    """Let ``true`` stand for "with the defaults" and ``false`` for "none"."""
    if isinstance(value, bool):
        return {} if value else None
    return value


class ActivationOptions(Part):
    """An element-wise function; ``slope`` of leaky_relu (0.01) or alpha of elu (1.0)."""

    kind: ActivationKind
    slope: float | None = None
    prefix: str | None = None

    @model_validator(mode="after")
    def _fields_fit_kind(self) -> Self:
        problems: list[tuple[tuple[str | int, ...], str]] = []
        if self.slope is not None and self.kind not in ("leaky_relu", "elu"):
            problems.append((("slope",), f"{self.kind} has no slope; leaky_relu and elu do"))
        if (self.prefix is not None) != (self.kind == "prelu"):
            found = "prelu needs" if self.kind == "prelu" else f"{self.kind} has no"
            problems.append((("prefix",), f"{found} a prefix: where its slopes are stored"))
        if problems:
            raise FieldProblems(problems)
        return self


class NormOptions(Part):
    """A layer norm, or a batch norm in eval mode; without ``affine`` it has no scale and shift."""

    prefix: str | None = None
    eps: float = Field(default=1e-5, gt=0)
    affine: bool = True


class SkipOptions(Part):
    """A link that adds an earlier tensor: ``layer`` (this layer's input), ``input`` (the
    features) or the number of the layer whose output it is; ``linear`` names a projection."""

    source: Literal["layer", "input"] | int = Field(default="layer", alias="from")
    linear: str | None = None

    @field_validator("source", mode="before")
    @classmethod
    def _check_source(cls, value: Any) -> Any:
        if value in ("layer", "input") or (type(value) is int and value >= 0):
            return value
        raise ValueError(f"is {value!r}; allowed: layer, input, or the number of an earlier layer")


Activation = Annotated[ActivationOptions, _short("kind")]
Norm = Annotated[NormOptions | None, BeforeValidator(_switch)]
Skip = Annotated[SkipOptions | None, BeforeValidator(_switch)]
After = Literal["average", "batch_norm", "layer_norm", "activation", "skip"]


class Layer(Part):
    """What every layer may have around its convolution.

    ``order`` says in which order the given ones of `After` follow the convolution.
    """

    weighted: ClassVar[bool | None] = None
    """Default of edge_weight; None where the library's module takes no edge weights."""
    marks: ClassVar[tuple[str, ...]] = ()
    """Parameter names by which the module is known among the weights."""

    conv: str
    prefix: str | None = None
    bias: bool = True
    edge_weight: bool | None = None
    batch_norm: Norm = None
    layer_norm: Norm = None
    activation: Activation | None = None
    skip: Skip = None
    order: tuple[After, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _check(self) -> Self:
        problems: list[tuple[tuple[str | int, ...], str]] = []
        if self.edge_weight and self.weighted is None:
            message = f"the library's {self.conv} takes no edge weights; remove it or say false"
            problems.append((("edge_weight",), message))
        given = self.parts_given()
        if self.order and sorted(self.order) != sorted(given):
            names = ", ".join(given) or "nothing"
            message = f"is [{', '.join(self.order)}]; must name what follows the conv: {names}"
            problems.append((("order",), message))
        problems += self.conflicts()
        if problems:
            raise FieldProblems(problems)
        return self

    def conflicts(self) -> list[tuple[tuple[str | int, ...], str]]:
        """Options of the convolution that exclude each other."""
        return []

    def averages_after(self) -> bool:
        """Whether averaging the heads is a part of its own behind the convolution."""
        return False

    def parts_given(self) -> list[After]:
        """What follows the convolution, in the usual order."""
        parts: list[tuple[After, object]] = [
            ("average", self.averages_after()),
            ("batch_norm", self.batch_norm is not None),
            ("layer_norm", self.layer_norm is not None),
            ("activation", self.activation is not None),
            ("skip", self.skip is not None),
        ]
        return [name for name, present in parts if present]

    def named_prefixes(self) -> list[str]:
        """Every prefix that this layer's description gives."""
        norms = [norm.prefix for norm in (self.batch_norm, self.layer_norm) if norm is not None]
        slopes = None if self.activation is None else self.activation.prefix
        link = None if self.skip is None else self.skip.linear
        return [name for name in (self.prefix, slopes, link, *norms) if name is not None]

    @property
    def uses_edge_weight(self) -> bool:
        """Whether stored edge weights multiply the messages."""
        return bool(self.weighted) if self.edge_weight is None else self.edge_weight


class DglGcn(Layer):
    """dgl.nn.GraphConv."""

    weighted = True
    marks = ("weight",)
    conv: Literal["gcn"]
    norm: Literal["both", "right", "left", "none"] = "both"
    weight: bool = True


class DglSage(Layer):
    """dgl.nn.SAGEConv; the aggregator follows from the parameters when it is not given."""

    weighted = True
    marks = ("fc_neigh.weight", "fc_self.weight")
    conv: Literal["sage"]
    aggregator_type: Literal["mean", "gcn", "pool"] | None = None


class DglHeads(Layer):
    """DGL's attention gives [N, heads, width]: the model joins the heads or averages them."""

    num_heads: int | None = Field(default=None, ge=1)
    concat: bool = True

    def averages_after(self) -> bool:
        """Averaging is the model's, so it may stand before or behind the activation."""
        return not self.concat


class DglGat(DglHeads):
    """dgl.nn.GATConv."""

    weighted = False
    marks = ("attn_l", "attn_r")
    conv: Literal["gat"]
    negative_slope: float = 0.2
    residual: bool = False


class DglGatv2(DglHeads):
    """dgl.nn.GATv2Conv."""

    marks = ("attn", "fc_src.weight")
    conv: Literal["gatv2"]
    negative_slope: float = 0.2
    residual: bool = False
    share_weights: bool = False


class DglDotGat(DglHeads):
    """dgl.nn.DotGatConv, which has no bias and whose weights do not tell the heads."""

    marks = ("fc.weight",)
    conv: Literal["dotgat"]
    bias: Literal[False] = False
    num_heads: int = Field(ge=1, description="the weights of dotgat do not tell it")


class PygGcn(Layer):
    """torch_geometric.nn.GCNConv."""

    weighted = True
    marks = ("lin.weight",)
    conv: Literal["gcn"]
    normalize: bool = True
    improved: bool = False
    add_self_loops: bool | None = None

    def conflicts(self) -> list[tuple[tuple[str | int, ...], str]]:
        """PyG refuses to add loops without normalising."""
        if self.add_self_loops and not self.normalize:
            return [(("add_self_loops",), "must not be true where normalize is false")]
        return []


class PygSage(Layer):
    """torch_geometric.nn.SAGEConv."""

    marks = ("lin_l.weight", "lin_r.weight")
    conv: Literal["sage"]
    aggr: Literal["mean", "max", "sum", "add"] = "mean"
    normalize: bool = False
    root_weight: bool = True
    project: bool = False


class PygGat(Layer):
    """torch_geometric.nn.GATConv."""

    marks = ("att_src", "att_dst")
    conv: Literal["gat"]
    heads: int | None = Field(default=None, ge=1)
    concat: bool = True
    negative_slope: float = 0.2
    add_self_loops: bool = True
    residual: bool = False


class PygGatv2(Layer):
    """torch_geometric.nn.GATv2Conv."""

    marks = ("att", "lin_l.weight")
    conv: Literal["gatv2"]
    heads: int | None = Field(default=None, ge=1)
    concat: bool = True
    negative_slope: float = 0.2
    add_self_loops: bool = True
    residual: bool = False
    share_weights: bool = False


class MlpModule(Part):
    """One module of GIN's function; exactly one field, whose value is the module's name."""

    linear: str | None = None
    batch_norm: str | None = None
    layer_norm: str | None = None
    activation: Activation | None = None
    bias: bool = True
    eps: float = Field(default=1e-5, gt=0)
    affine: bool = True

    @model_validator(mode="after")
    def _one_module(self) -> Self:
        modules = (self.linear, self.batch_norm, self.layer_norm, self.activation)
        if sum(module is not None for module in modules) != 1:
            raise ValueError("must have one of: linear, batch_norm, layer_norm, activation")
        return self


def _mlp_word(value: Any) -> Any:
    """``linear`` and the norms stand for the next such module, other words are activations."""
    if not isinstance(value, str):
        return value
    return {value: ""} if value in ("linear", "batch_norm", "layer_norm") else {"activation": value}


class Gin(Layer):
    """GIN's function: a single linear layer unless ``mlp`` lists its modules in order."""

    marks = ("eps",)
    conv: Literal["gin"]
    bias: Literal[True] = True
    eps: float | None = None
    mlp: list[Annotated[MlpModule, BeforeValidator(_mlp_word)]] | None = None


class DglGin(Gin):
    """dgl.nn.GINConv."""

    weighted = True
    aggregator_type: Literal["sum", "max", "mean"] = "sum"


class PygGin(Gin):
    """torch_geometric.nn.GINConv."""

    aggr: Literal["add", "sum", "max", "mean"] = "add"


LAYERS: dict[Library, dict[str, type[Layer]]] = {
    "dgl": {
        "gcn": DglGcn,
        "sage": DglSage,
        "gat": DglGat,
        "gatv2": DglGatv2,
        "gin": DglGin,
        "dotgat": DglDotGat,
    },
    "pyg": {"gcn": PygGcn, "sage": PygSage, "gat": PygGat, "gatv2": PygGatv2, "gin": PygGin},
}
