"""Base classes, types and checks shared by all parts of the manifest.

A manifest is written by hand and validated twice: by this package and by the Kubernetes API
server. So the models are as strict as a structural schema: fields are camelCase, unknown fields
are rejected, and ``"4"`` is not a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from embertide.spec.cel import Rule
from embertide.spec.result_names import RESULT_PATTERN
from embertide.spec.schemes import FILE, check_uri, scheme_name, uri_forms, uri_rule

VALIDATIONS = "x-kubernetes-validations"
MAX_TYPES = 64
"""The maximum number of node types, and of edge types, of one job."""
MAX_FEATURE_COLUMNS = 16384
MAX_EDGE_FEATURES = 256
_MAX_URI = 2048
MAX_COLUMN_NAME = 1024

RECURSIVE = (
    "Whether objects in subfolders are read too. false refuses them, so that none is read or left "
    "out by mistake; names that begin with . or _ never count."
)
"""Description of the field of that name."""

INCLUDE = (
    "Pattern of the names of the objects to read, such as '*.parquet': * stands for any "
    "characters, ? for one. Others do not count. If unset, all are read."
)
"""Description of the field of that name."""

# A path relative to the object that was checked, and a sentence.
Problem = tuple[tuple[str | int, ...], str]


class SpecModel(BaseModel):
    """Base of every manifest object: camelCase in YAML, snake_case in Python, frozen."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        strict=True,
        validate_default=False,
        hide_input_in_errors=True,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()
    """CEL rules across this object's fields, equivalent to the validators here."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core_schema))
        if cls.rules:
            schema[VALIDATIONS] = [rule.to_schema() for rule in cls.rules]
        return schema


class FieldProblems(ValueError):
    """The problems found by one check across fields.

    Paths are tuples such as ``("columns", "source")`` or ``("edges", 0, "sourceType")``.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(f"{'.'.join(map(str, p))}: {m}" for p, m in self.problems))


def raise_problems(problems: Sequence[Problem]) -> None:
    """Raise the problems found by a check, if any.

    Raises:
        FieldProblems: ``problems`` is not empty.
    """
    if problems:
        raise FieldProblems(problems)


def normalise_uri(text: str, base: Path | None = None) -> str:
    """Normalise a location to a URI of one of the schemes of :mod:`embertide.spec.schemes`.

    An absolute path becomes ``file://``; a relative one is resolved against ``base`` (the
    directory of the manifest file). Without ``base`` it is rejected, since its meaning would
    depend on the machine.

    Raises:
        ValueError: any other form; the message lists the allowed ones.
    """
    if text == "" or text != text.strip():
        raise ValueError(f"is {text!r}; must be {uri_forms()}, without spaces around it")
    if scheme_name(text) is None:
        return _path_uri(text, base)
    check_uri(text)
    return text


def _path_uri(text: str, base: Path | None) -> str:
    if text.startswith("~"):
        raise ValueError(f"is {text!r}; '~' is not expanded, write the absolute path")
    slash = "/" if text.endswith("/") and text != "/" else ""
    if text.startswith("/"):
        return f"{FILE.name}://{text}"
    if base is None:
        raise ValueError(f"is {text!r}, a relative path; must be {uri_forms()}")
    # normpath would be wrong after a symbolic link; absolute() keeps '..' as it is.
    return f"{FILE.name}://{(base / text).absolute()}{slash}"


def _check_uri(text: str, info: ValidationInfo) -> str:
    base = (info.context or {}).get("base")
    return normalise_uri(text, base)


def derived_default(schema: dict[str, Any]) -> None:
    """For ``json_schema_extra``: drops a default that depends on other fields."""
    schema.pop("default", None)


_URI_RULES = (
    Rule("self == self.trim()", "must have no spaces around it"),
    Rule(
        uri_rule("self"),
        f"must be {uri_forms()}, with a valid bucket name",
    ),
)

Uri = Annotated[
    str,
    Field(max_length=_MAX_URI),
    AfterValidator(_check_uri),
    WithJsonSchema(
        {
            "type": "string",
            "maxLength": _MAX_URI,
            VALIDATIONS: [rule.to_schema() for rule in _URI_RULES],
        }
    ),
]
_NAMES_MUST = "is matched with names, not with paths; it must have no /"


def _check_names(text: str) -> str:
    if "/" in text:
        raise ValueError(f"is {text!r}; {_NAMES_MUST}")
    return text


NamePattern = Annotated[
    str,
    Field(min_length=1, max_length=MAX_COLUMN_NAME),
    AfterValidator(_check_names),
    WithJsonSchema(
        {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_COLUMN_NAME,
            VALIDATIONS: [Rule("!self.contains('/')", _NAMES_MUST).to_schema()],
        }
    ),
]
ColumnName = Annotated[str, Field(min_length=1, max_length=MAX_COLUMN_NAME)]
TypeName = Annotated[
    str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z_]([A-Za-z0-9_-]*[A-Za-z0-9_])?$")
]
ResultName = Annotated[str, Field(min_length=1, max_length=63, pattern=RESULT_PATTERN)]
FreeForm = dict[str, Any]
