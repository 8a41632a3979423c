"""How the embeddings are computed: which neighbours count, and how they are fetched."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, WithJsonSchema

from embertide.spec.affects import Affects
from embertide.spec.base import SpecModel
from embertide.spec.targets import Targets

_MIB = 1 << 20
_MAX_LAYERS = 64

Neighbours = Annotated[int, Field(ge=1)]
Fanout = Annotated[
    Annotated[Literal["full"], Tag("<full>")]
    | Annotated[list[Neighbours], Field(min_length=1, max_length=_MAX_LAYERS), Tag("<list>")],
    Discriminator(
        lambda value: (
            "<list>" if isinstance(value, list) else "<full>" if value == "full" else None
        ),
        custom_error_type="fanout",
        custom_error_message="must be 'full', or a list with the number of neighbours for each "
        "layer, such as [50, 50, 50]",
    ),
    # A schema of Kubernetes cannot say "this word or that list", but what either has to be.
    WithJsonSchema(
        {
            "x-kubernetes-preserve-unknown-fields": True,
            "pattern": "^full$",
            "minItems": 1,
            "maxItems": _MAX_LAYERS,
            "items": {"type": "integer", "minimum": 1},
        }
    ),
]


class Inference(SpecModel):
    """How the embeddings are computed."""

    fanout: Fanout = Field(
        default="full",
        description="Which in-neighbours a node aggregates. Either the word full, for all of "
        "them; or a list with the number of in-neighbours to sample in each layer, such as "
        "[50, 50, 50].",
    )
    seed: int = Field(
        default=0,
        ge=0,
        le=2**63 - 1,
        description="Random seed for neighbour sampling. The same seed gives the same sample on "
        "every grid.",
    )
    targets: Targets | None = Field(
        default=None,
        description="The nodes whose embeddings are wanted: only what these need is computed, and "
        "the version has their rows alone. It is published below output.uri in _targets, with a "
        "LATEST apart from that of all nodes. Cannot change once the job is accepted. If unset, "
        "all nodes.",
    )
    group_bytes: Annotated[int, Affects.WORKERS] = Field(
        default=8 * _MIB,
        ge=4096,
        description="Size of one receive buffer for features of remote neighbours, in bytes.",
    )
    rows: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="How rows that layers read over edges are held, and rows travel between "
        "workers. bfloat16 rounds their values to 8 significant bits, in half the bytes; what is "
        "computed of them stays float32, and the run's report states the error.",
    )
    checked_rows: Annotated[int | None, Affects.NEITHER] = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description="Rows of each layer, by node type, that are computed a second time, slowly and "
        "in float64, from the rows of the layer before. Where one differs, nothing is published. 0 "
        "switches this off. If unset, 0.1% of the nodes, at least 256 and at most 4096.",
    )
    depth: Annotated[int, Affects.WORKERS] = Field(
        default=2,
        ge=1,
        le=64,
        description="Pipeline depth: number of buffers in flight while another one is computed on.",
    )
    groups_per_message: Annotated[int, Affects.WORKERS] = Field(
        default=1,
        ge=1,
        le=64,
        description="Most groups of groupBytes that travel in one message between workers of "
        "different hosts, with device cpu. Above 1 the run finds out how many are fastest, and "
        "each buffer has room for so many groups.",
    )
