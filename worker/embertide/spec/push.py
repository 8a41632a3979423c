"""``spec.push``: the index that serves the embeddings, into which versions are pushed."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from embertide.spec.affects import Affects
from embertide.spec.base import (
    VALIDATIONS,
    FreeForm,
    ResultName,
    SpecModel,
    TypeName,
    raise_problems,
)
from embertide.spec.cel import Rule
from embertide.spec.workers import RESOURCES

_LONGEST = 2048
_FORM = (
    r"^(postgres(ql)?://[^/\s]*(/\S*)?|(qdrant|milvus)[+]https?://[^/\s]+(/\S*)?"
    r"|lancedb[+]s3://[^/\s]+(/\S*)?|(qdrant|milvus|lancedb):///\S+)$"
)
_FORM_MUST = (
    "must be postgresql://USER@HOST/DB, qdrant+https://HOST:6333, milvus+https://HOST:19530,"
    " lancedb+s3://BUCKET/PREFIX or a path such as lancedb:///PATH"
)
_PASSWORD = r"^[^/]*//[^/]*:.*@"
_SECRET_PARAMETER = r"[?&][^=&]*(password|key|token)[^=&]*="
_SECRET_MUST = (
    "must have no password, key or token in it, which everyone who reads the job would see; name"
    " the Secret in credentialsSecret, or set the variable (PGPASSWORD, QDRANT_API_KEY,"
    " MILVUS_TOKEN) outside Kubernetes"
)
_OF_STORAGE = "must not be set for LanceDB, which has the credentials of spec.storage"
SECRET_KEYS = {
    "postgresql": ("PGPASSWORD",),
    "qdrant": ("QDRANT_API_KEY",),
    "milvus": ("MILVUS_TOKEN",),
    "lancedb": (),
}
"""Kind of index -> variables with its secrets, which are keys of ``credentialsSecret``."""


def without_secrets(location: str) -> str:
    """A location as it may be shown: without what stands before an @, and without a query."""
    parts = urlsplit(location)
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")
    return shown.geturl()


def has_secret(location: str) -> bool:
    """Whether a location has a password, a key or a token in it."""
    named = re.search(_SECRET_PARAMETER, location.lower())
    return named is not None or re.search(_PASSWORD, location) is not None


def kind_of_index(location: str) -> str:
    """``postgresql``, ``qdrant``, ``milvus``, ``lancedb``, or whatever else the scheme names."""
    kind, _, _ = urlsplit(location).scheme.partition("+")
    return "postgresql" if kind == "postgres" else kind


def _check_location(text: str) -> str:
    if has_secret(text):
        raise ValueError(_SECRET_MUST)
    if not re.fullmatch(_FORM, text):
        raise ValueError(f"is {text!r}; {_FORM_MUST}")
    return text


_LOCATION_RULES = (
    Rule(f"self.matches(r'{_FORM}')", _FORM_MUST),
    Rule(
        f"!self.matches(r'{_PASSWORD}') && !self.lowerAscii().matches(r'{_SECRET_PARAMETER}')",
        _SECRET_MUST,
    ),
)
IndexLocation = Annotated[
    str,
    Field(max_length=_LONGEST),
    AfterValidator(_check_location),
    WithJsonSchema(
        {
            "type": "string",
            "maxLength": _LONGEST,
            VALIDATIONS: [rule.to_schema() for rule in _LOCATION_RULES],
        }
    ),
]


class Push(SpecModel):
    """The index that the current version is pushed into, and how."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.credentialsSecret) || !self.uri.startsWith('lancedb')",
            _OF_STORAGE,
            ".credentialsSecret",
        ),
    )

    uri: IndexLocation = Field(
        description="The index: postgresql://USER@HOST/DB (with pgvector), "
        "qdrant+https://HOST:6333, milvus+https://HOST:19530, or lancedb+s3://BUCKET/PREFIX, which "
        "is accessed as spec.storage says. qdrant:///PATH, milvus:///PATH and lancedb:///PATH are "
        "files of the machine or pod."
    )
    name: str | None = Field(
        default=None,
        max_length=200,
        pattern=r"^[a-z_][a-z0-9_]*$",
        description="The view, alias or table that readers use; of several node types and results "
        "each has _ and its name after it. If unset, the name of the job, or of its schedule.",
    )
    node_type: TypeName | None = Field(
        default=None, description="The node type that is pushed. If unset, all that are published."
    )
    result: ResultName | None = Field(
        default=None, description="The result that is pushed. If unset, all that are published."
    )
    metric: Literal["cosine", "l2", "ip"] = Field(
        default="cosine", description="By which readers search: cosine, l2 or ip (inner product)."
    )
    vectors: Literal["float32", "float16"] = Field(
        default="float32", description="Data type of the vectors in the index."
    )
    normalize: bool = Field(
        default=False,
        description="true divides vectors by their L2 norm; zero vectors stay as they are.",
    )
    search_index: bool = Field(
        default=True,
        description="true builds an HNSW index before readers are switched (PostgreSQL; others "
        "index by themselves).",
    )
    rows: Literal["auto", "all"] = Field(
        default="auto",
        description="auto: where the version has a delta (spec.output.delta) and the index can "
        "copy the table of the version before, only what changed is sent. all: every row is.",
    )
    keep_versions: int = Field(
        default=2,
        ge=1,
        description="Number of versions to keep in the index, so that readers can be switched "
        "back at once; older ones are dropped.",
    )
    credentials_secret: Annotated[str | None, Affects.OPERATOR] = Field(
        default=None,
        min_length=1,
        max_length=253,
        pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$",
        description="Secret in the job's namespace with PGPASSWORD, QDRANT_API_KEY or "
        "MILVUS_TOKEN, whichever the index takes. Ignored outside Kubernetes, where the variable "
        "of that name is read.",
    )
    image: Annotated[str | None, Affects.OPERATOR] = Field(
        default=None,
        min_length=1,
        description="Container image of the pod that pushes: the worker's with the index's client. "
        "If unset, the workers' image. Ignored outside Kubernetes.",
    )
    resources: Annotated[FreeForm, RESOURCES, Affects.OPERATOR] | None = Field(
        default=None,
        description="Resource limits and requests of the container that pushes, as in a pod. If "
        "unset, those of planners (worker.planner.resources of the chart). Ignored outside "
        "Kubernetes.",
    )
    backoff_limit: Annotated[int, Affects.OPERATOR] = Field(
        default=6,
        ge=0,
        le=1000,
        description="Number of retries after a failed push, with growing pauses; each goes on "
        "where the one before ended. Ignored outside Kubernetes.",
    )
    active_deadline_seconds: Annotated[int, Affects.OPERATOR] = Field(
        default=86400,
        ge=1,
        description="Time limit for one attempt to push, in seconds. Parts that an attempt has "
        "loaded are not loaded again by the next one. Ignored outside Kubernetes.",
    )

    @property
    def kind(self) -> str:
        """The kind of index."""
        return kind_of_index(self.uri)

    @model_validator(mode="after")
    def _check_credentials(self) -> Self:
        if self.credentials_secret is not None and self.kind == "lancedb":
            raise_problems([(("credentialsSecret",), _OF_STORAGE)])
        return self
