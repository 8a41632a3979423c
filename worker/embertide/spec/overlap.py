"""Reject jobs whose output overlaps with what they read.

Publishing deletes old versions under the output. An input that is inside the output, or that
contains it, could lose objects or read its own results.
"""

from __future__ import annotations

import posixpath
from fnmatch import fnmatchcase

from embertide.spec.base import Problem
from embertide.spec.cel import Rule
from embertide.spec.features import FeatureInput
from embertide.spec.inputs import Input
from embertide.spec.places import ObjectInput, literal
from embertide.spec.schemes import FILE, is_local
from embertide.spec.targets import Targets


def _apart(theirs: str) -> str:
    """In CEL: the output does not equal, contain or lie inside another location.

    ``file:///a``, ``/a``, ``/a/`` and ``/a//`` are the same location; ``..`` is not resolved.
    """
    a, b = _folder("self.output.uri"), _folder(theirs)
    return f"(!{a}.startsWith({b}) && !{b}.startsWith({a}))"


def _folder(uri: str) -> str:
    scheme = f"{FILE.name}:"
    path = f"({uri}.startsWith('{scheme}') ? {uri}.substring({len(scheme)}) : {uri})"
    return f"({path} + '/').replace('//', '/').replace('//', '/')"


def _apart_at(theirs: str) -> str:
    """In CEL: the same of a ``uri`` that may be left out; what fits a pattern CEL cannot say."""
    return rf"(!has({theirs}) || {theirs}.matches(r'[*?\[]') || {_apart(theirs)})"


def _rule(what: str, rule: str) -> Rule:
    message = f"must be a prefix of its own: it is, contains or lies inside {what}"
    return Rule(rule, message, ".output.uri")


OUTPUT_RULES = (
    _rule("the uri of spec.input.edges", f"self.input.edges.all(e, {_apart_at('e.uri')})"),
    _rule(
        "the uri of features in spec.input.nodes",
        f"self.input.nodes.all(n, !has(n.features) || {_apart_at('n.features.uri')})",
    ),
    _rule(
        "the idsUri of features in spec.input.nodes",
        "self.input.nodes.all(n, !has(n.features) || !has(n.features.idsUri) || "
        f"{_apart('n.features.idsUri')})",
    ),
    _rule(
        "the uri of a scaling in spec.input.nodes",
        "self.input.nodes.all(n, !has(n.features) || !has(n.features.scaling) || "
        "!has(n.features.scaling.uri) || "
        f"{_apart('n.features.scaling.uri')})",
    ),
    _rule(
        "the uri of a table in spec.input.nodes",
        f"self.input.nodes.all(n, !has(n.table) || {_apart_at('n.table.uri')})",
    ),
    _rule(
        "the uri of spec.input.pairs",
        f"!has(self.input.pairs) || {_apart_at('self.input.pairs.uri')}",
    ),
    _rule(
        "the uri of spec.inference.targets",
        "!has(self.inference) || !has(self.inference.targets) || "
        "!has(self.inference.targets.table) || "
        f"{_apart_at('self.inference.targets.table.uri')}",
    ),
    _rule("spec.model.uri", f"!has(self.model.uri) || {_apart('self.model.uri')}"),
)
"""CEL rules equivalent to :func:`output_overlaps`, but for patterns and lists of places, which only
that judges: over all of them the rules would cost the API server too much."""


def output_overlaps(
    inputs: Input, model_uri: str | None, output_uri: str, targets: Targets | None = None
) -> list[Problem]:
    """A problem for every input that equals, contains or lies inside the output.

    Of a window the whole folder that its days are in; of a pattern everything that can fit it.
    """
    return [
        (
            ("output", "uri"),
            f"is {output_uri!r}, which {relation} {_dotted(path)} ({uri!r}); "
            "the output needs a prefix of its own",
        )
        for path, uri in [*_locations(inputs, model_uri), *_of_targets(targets)]
        if (relation := _relation(output_uri, uri))
    ]


def _locations(inputs: Input, model_uri: str | None) -> list[tuple[tuple[str | int, ...], str]]:
    """Everything the job reads, as patterns, with its path in the manifest."""
    found: list[tuple[tuple[str | int, ...], str]] = []
    for i, edge in enumerate(inputs.edges):
        at = ("spec", "input", "edges", i)
        found += [((*at, *rest), uri) for rest, uri in _places(edge)]
    for i, node in enumerate(inputs.nodes):
        at = ("spec", "input", "nodes", i)
        if node.features is not None:
            found += [((*at, "features", *rest), uri) for rest, uri in _of_features(node.features)]
        if node.table is not None:
            found += [((*at, "table", *rest), uri) for rest, uri in _places(node.table)]
    if inputs.pairs is not None:
        places = _places(inputs.pairs)
        found += [(("spec", "input", "pairs", *rest), uri) for rest, uri in places]
    if model_uri is not None:
        found.append((("spec", "model", "uri"), literal(model_uri)))
    return found


def _of_targets(targets: Targets | None) -> list[tuple[tuple[str | int, ...], str]]:
    """The table of the targets, if there is one, with its path in the manifest."""
    if targets is None or targets.table is None:
        return []
    at = ("spec", "inference", "targets", "table")
    return [((*at, *rest), uri) for rest, uri in _places(targets.table)]


def _places(given: ObjectInput) -> list[tuple[tuple[str | int, ...], str]]:
    """The places that an input names, with their paths below it."""
    if given.uri is not None:
        return [(("uri",), given.uri)]
    return [(("uris", i), uri) for i, uri in enumerate(given.uris or [])]


def _of_features(features: FeatureInput) -> list[tuple[tuple[str | int, ...], str]]:
    """What is read of features, with its path below them."""
    found = _places(features)
    if features.ids_uri is not None:
        found.append((("idsUri",), literal(features.ids_uri)))
    if features.scaling is not None and features.scaling.uri is not None:
        found.append((("scaling", "uri"), literal(features.scaling.uri)))
    return found


def _relation(output: str, pattern: str) -> str | None:
    ours, theirs = _segments(output), _segments(pattern)
    if not all(fnmatchcase(name, fits) for name, fits in zip(ours, theirs, strict=False)):
        return None
    if len(ours) == len(theirs):
        return "is also"
    return "lies inside" if len(ours) > len(theirs) else "contains"


def _segments(uri: str) -> list[str]:
    """Scheme and path segments, so that ``s3://b/ab`` is not inside ``s3://b/a``."""
    scheme, _, path = uri.partition("://")
    if is_local(uri):
        path = posixpath.normpath(path)
    return [scheme, *(part for part in path.split("/") if part)]


def _dotted(path: tuple[str | int, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")
