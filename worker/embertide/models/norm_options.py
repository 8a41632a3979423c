"""Norms of ``model.yaml`` whose statistics are taken over all nodes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from embertide.models.parts import NormOptions, Part, switch
from embertide.spec.base import FieldProblems

_FITS = {
    "prefix": ("graph", "instance"),
    "eps": ("graph", "instance", "pair"),
    "affine": ("instance",),
    "track_running_stats": ("instance",),
    "scale": ("pair",),
    "scale_individually": ("pair",),
}
"""Field -> the kinds that have it."""


class LayerNormOptions(NormOptions):
    """A layer norm: of each node's row, or of all values of the graph."""

    mode: Literal["node", "graph"] = Field(
        default="node",
        description="`node`: each node's row on its own, as `torch.nn.LayerNorm` does; `graph`: one"
        " mean and deviation of all nodes together. The weights look the same, so say `graph` where"
        " the module is PyG's LayerNorm without `mode`: there it is the default",
    )


class GraphNormOptions(Part):
    """A norm over all nodes of a type."""

    kind: Literal["graph", "instance", "pair", "mean_subtraction", "size"] = Field(
        default="graph",
        description="PyG's GraphNorm, InstanceNorm, PairNorm, MeanSubtractionNorm, GraphSizeNorm",
    )
    prefix: str | None = Field(
        default=None,
        description="name of the module in the weights; without it, a GraphNorm is inferred from"
        " the names. An instance norm needs it where it stores anything",
    )
    eps: float = Field(default=1e-5, gt=0, description="added to the variance, as in training")
    affine: bool = Field(default=False, description="of instance: whether it has scale and shift")
    track_running_stats: bool = Field(
        default=False,
        description="of instance: whether it uses the stored statistics, not those of the graph",
    )
    scale: float = Field(
        default=1.0,
        description="of pair: what the result is multiplied by. PyG's basic models (GCN, GraphSAGE,"
        ' ...) with `norm="pair_norm"` pass their hidden channels as the scale',
    )
    scale_individually: bool = Field(
        default=False, description="of pair: whether each row is divided by its own length"
    )

    @property
    def stores(self) -> bool:
        """Whether the module has parameters or statistics."""
        return self.kind == "graph" or self.affine or self.track_running_stats

    @model_validator(mode="after")
    def _fields_fit_kind(self) -> Self:
        problems: list[tuple[tuple[str | int, ...], str]] = [
            ((name,), f"a norm of kind {self.kind} has none; remove it")
            for name, kinds in _FITS.items()
            if name in self.model_fields_set and self.kind not in kinds
        ]
        if self.kind == "instance" and self.stores and self.prefix is None:
            message = "say where the module's parameters are: its name in the weights"
            problems.append((("prefix",), message))
        if problems:
            raise FieldProblems(problems)
        return self


def _graph_norm(value: Any) -> Any:
    """Let ``pair`` stand for ``{kind: pair}``, and ``true`` for GraphNorm."""
    return {"kind": value} if isinstance(value, str) else switch(value)


LayerNorm = Annotated[LayerNormOptions | None, BeforeValidator(switch)]
GraphNorm = Annotated[GraphNormOptions | None, BeforeValidator(_graph_norm)]
