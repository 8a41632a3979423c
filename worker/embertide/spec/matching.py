"""Text that has to match a pattern, here and at the API server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from embertide.spec.base import VALIDATIONS
from embertide.spec.cel import Rule


@dataclass(frozen=True)
class Matching:
    """As metadata of a field's type: ``Annotated[str, Matching(...)]``.

    Attributes:
        pattern: a regular expression that Python and CEL read alike.
        longest: characters at most.
        must: what a text has to be, as messages say it.
    """

    pattern: str
    longest: int
    must: str

    def check(self, text: str) -> str:
        """The text.

        Raises:
            ValueError: it does not match, or is longer.
        """
        if not re.fullmatch(self.pattern, text):
            raise ValueError(f"is {text!r}; {self.must}")
        if len(text) > self.longest:
            raise ValueError(f"has {len(text)} characters; at most {self.longest} are allowed")
        return text

    def __get_pydantic_core_schema__(
        self, source: type[str], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        del schema, handler
        rule = Rule(f"self.matches(r'{self.pattern}')", self.must)
        return {"type": "string", "maxLength": self.longest, VALIDATIONS: [rule.to_schema()]}


Percent = Annotated[
    str,
    Matching(
        r"^[0-9]{1,2}(\.[0-9]{1,3})?%$",
        7,
        "must be a percentage from 0% to below 100%, such as 10%",
    ),
]
"""A share with a percent sign, such as 10%."""
PercentOrAll = Annotated[
    str,
    Matching(
        r"^(100|[0-9]{1,2}(\.[0-9]{1,3})?)%$",
        7,
        "must be a percentage from 0% to 100%, such as 10%",
    ),
]
"""The same, or 100%."""


def percent_share(text: str) -> float:
    """The share that a :data:`Percent` stands for, such as 0.1 for ``10%``."""
    return float(text.removesuffix("%")) / 100
