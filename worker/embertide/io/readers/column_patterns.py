"""Feature columns by pattern: ``columns: ["f*", age]``.

Patterns are expanded once, from the first object, since the order of the columns is that of the
model's weights: every rank and every object must have the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from embertide.errors import InputError
from embertide.io.readers.columns import listed
from embertide.spec.features import FeatureInput

_FIELD = "(features.columns)"


@dataclass(frozen=True)
class ColumnPatterns:
    """The manifest's ``columns``; patterns never select those in ``others``."""

    given: tuple[str, ...]
    others: tuple[str | None, ...]

    def expand(self, uri: str, names: Sequence[str]) -> tuple[str, ...]:
        """The columns selected from an object with columns ``names``.

        Entry by entry; those of one pattern in the order of ``names``. An entry that is the name
        of a column is that column, whatever characters it has.

        Raises:
            InputError: a pattern selects nothing, or two entries select the same column.
        """
        chosen: dict[str, str] = {}
        for entry in self.given:
            for name in self._select(uri, entry, names):
                if name in chosen:
                    raise InputError(
                        f"{uri}: {chosen[name]!r} and {entry!r} {_FIELD} both select column "
                        f"{name!r}; every column is taken once, make the patterns narrower"
                    )
                chosen[name] = entry
        return tuple(chosen)

    def _select(self, uri: str, entry: str, names: Sequence[str]) -> list[str]:
        if entry in names or not _is_pattern(entry):
            return [entry]
        matches = re.compile(_regex(entry), re.DOTALL).fullmatch
        found = [name for name in dict.fromkeys(names) if matches(name) and name not in self.others]
        if not found:
            raise InputError(
                f"{uri} has no column that matches {entry!r} {_FIELD}; its columns are "
                f"{listed(names)}"
            )
        return found

    def check(self, columns: Sequence[str], uri: str, names: Sequence[str]) -> None:
        """Refuse an object from which others than ``columns`` are selected, in whatever order.

        Raises:
            InputError: names the columns that are too many or too few.
        """
        found = set(self.expand(uri, names))
        more = [name for name in names if name in found.difference(columns)]
        fewer = [name for name in columns if name not in found]
        if more or fewer:
            ways = [("it also has", more), ("it lacks", fewer)]
            difference = " and ".join(f"{verb} {listed(which)}" for verb, which in ways if which)
            raise InputError(
                f"{uri} has other columns for {listed(self.given)} {_FIELD} than the first object: "
                f"{difference}; all objects must have the same, or name the columns one by one"
            )


def _is_pattern(entry: str) -> bool:
    return "*" in entry or "?" in entry


def _regex(pattern: str) -> str:
    return "".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in pattern)


def patterns_of(features: FeatureInput) -> ColumnPatterns | None:
    """What has to be expanded; None where columns are named one by one, or not at all."""
    given = features.columns
    if given is None or not any(map(_is_pattern, given)):
        return None
    return ColumnPatterns(tuple(given), (features.id_column, features.vector_column))
