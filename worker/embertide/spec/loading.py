"""Read a manifest from YAML, with errors that name the line.

What YAML accepts silently is rejected: duplicate keys, a second document, a date where text was
meant.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from embertide.errors import ManifestError
from embertide.spec.problems import Loc, dotted, explain

Model = TypeVar("Model", bound=BaseModel)
# From the raw data and the validation context to further problems.
MoreProblems = Callable[[dict[str, Any], dict[str, Any]], list[tuple[Loc, str]]]
# From the raw data to what is validated in its place, and the problems met in doing so.
Prepare = Callable[[dict[str, Any]], tuple[dict[str, Any], list[tuple[Loc, str]]]]


def as_it_is(data: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[Loc, str]]]:
    """Prepare nothing."""
    return data, []


class _Loader(yaml.SafeLoader):
    """SafeLoader that rejects duplicate keys instead of dropping the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None,
                        None,
                        f"duplicate key {key.value!r}; remove one of them",
                        key.start_mark,
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def read_manifest(
    model: type[Model], text_or_path: str | Path, more: MoreProblems, prepare: Prepare
) -> Model:
    """Read, parse and validate one document, from text or from a file.

    ``more`` finds the problems that pydantic skips once it has found others; ``prepare`` may change
    the data before.

    Raises:
        ManifestError: every problem found.
    """
    if isinstance(text_or_path, str) and ("\n" in text_or_path or "{" in text_or_path):
        return parse_document(model, text_or_path, "manifest", None, more, prepare)
    path = Path(text_or_path)
    return parse_document(model, read_file(path), str(path), path.parent, more, prepare)


def parse_document(
    model: type[Model],
    text: str,
    source: str,
    base: Path | None = None,
    more: MoreProblems = lambda _data, _context: [],
    prepare: Prepare = as_it_is,
) -> Model:
    """Parse and validate one YAML document; ``prepare`` may change it in between.

    Raises:
        ManifestError: every problem found, naming ``source``.
    """
    data, root = _parse_yaml(text, source)
    if not isinstance(data, dict):
        found = "empty" if data is None else f"a {type(data).__name__}"
        fields = model.model_fields.items()
        *most, last = [field.alias or name for name, field in fields if field.is_required()]
        message = f"is {found}; must be a mapping with {', '.join(most)} and {last}"
        raise ManifestError([("", message)], source)
    data, found_all = prepare(data)
    context = {"base": base}
    try:
        valid = model.model_validate(data, context=context, by_alias=True, by_name=False)
        if not found_all:
            return valid
    except ValidationError as error:
        found_all = [*found_all, *explain(model, error), *more(data, context)]
    once = dict.fromkeys(found_all)
    problems = [(dotted(loc), message + _line_of(root, loc)) for loc, message in once]
    raise ManifestError(problems, source)


def read_file(path: Path) -> str:
    """The text of a manifest.

    Raises:
        ManifestError: there is no such file, or it is not text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        message = f"is not text in UTF-8 (byte {error.start}); a manifest is YAML or JSON"
    except FileNotFoundError:
        message = "no such file; give the path of a manifest (see `embertide run --help`)"
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
    raise ManifestError([("", message)], str(path))


def _parse_yaml(text: str, source: str) -> tuple[Any, yaml.Node | None]:
    """The data, and the node tree that has the line numbers."""
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        return (None if root is None else loader.construct_document(root)), root
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        message = f"{where}not valid YAML: {error.problem or error.context}"
        if error.context and "single document" in error.context:
            message = (
                f"{where}a second document starts here; put each document into a file of its own"
            )
        raise ManifestError([("", message)], source) from None
    except yaml.YAMLError as error:
        raise ManifestError([("", f"not valid YAML: {error}")], source) from None
    except (ValueError, RecursionError) as error:
        # A date such as 2026-13-45 matches YAML's timestamp pattern but is invalid.
        raise ManifestError([("", f"not valid YAML: {error}")], source) from None
    finally:
        loader.dispose()


def _line_of(root: yaml.Node | None, loc: Loc) -> str:
    """The line of ``loc``, or of the nearest object that contains it."""
    node, line = root, None
    for part in loc:
        child = _child(node, part)
        if child is None:
            break
        node, line = child
    return "" if line is None else f" (line {line + 1})"


def _child(node: yaml.Node | None, part: str | int) -> tuple[yaml.Node, int] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                return value, key.start_mark.line
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part].start_mark.line
    return None
