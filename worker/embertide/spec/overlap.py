"""Reject jobs whose output overlaps with what they read.

Publishing deletes old versions under the output. An input that is inside the output, or that
contains it, could lose objects or read its own results.
"""

from __future__ import annotations

import posixpath

from embertide.spec.base import Problem
from embertide.spec.cel import Rule
from embertide.spec.features import FeatureInput
from embertide.spec.inputs import Input


def _apart(theirs: str) -> str:
    """In CEL: the output does not equal, contain or lie inside another location.

    ``file:///a``, ``/a``, ``/a/`` and ``/a//`` are the same location; ``..`` is not resolved.
    """
    a, b = _folder("self.output.uri"), _folder(theirs)
    return f"(!{a}.startsWith({b}) && !{b}.startsWith({a}))"


def _folder(uri: str) -> str:
    path = f"({uri}.startsWith('file:') ? {uri}.substring(5) : {uri})"
    return f"({path} + '/').replace('//', '/').replace('//', '/')"


def _rule(what: str, rule: str) -> Rule:
    message = f"must be a prefix of its own: it is, contains or lies inside {what}"
    return Rule(rule, message, ".output.uri")


OUTPUT_RULES = (
    _rule("the uri of spec.input.edges", f"self.input.edges.all(e, {_apart('e.uri')})"),
    _rule(
        "the uri of features in spec.input.nodes",
        f"self.input.nodes.all(n, !has(n.features) || {_apart('n.features.uri')})",
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
        f"self.input.nodes.all(n, !has(n.table) || {_apart('n.table.uri')})",
    ),
    _rule("spec.model.uri", _apart("self.model.uri")),
)
"""CEL rules equivalent to :func:`output_overlaps`."""


def output_overlaps(inputs: Input, model_uri: str, output_uri: str) -> list[Problem]:
    """A problem for every input that equals, contains or lies inside the output."""
    return [
        (
            ("output", "uri"),
            f"is {output_uri!r}, which {relation} {_dotted(path)} ({uri!r}); "
            "the output needs a prefix of its own",
        )
        for path, uri in _locations(inputs, model_uri)
        if (relation := _relation(output_uri, uri))
    ]


def _locations(inputs: Input, model_uri: str) -> list[tuple[tuple[str | int, ...], str]]:
    """Everything the job reads, with its path in the manifest."""
    found: list[tuple[tuple[str | int, ...], str]] = []
    for i, edge in enumerate(inputs.edges):
        found.append((("spec", "input", "edges", i, "uri"), edge.uri))
    for i, node in enumerate(inputs.nodes):
        at = ("spec", "input", "nodes", i)
        if node.features is not None:
            found += [((*at, "features", *rest), uri) for rest, uri in _of_features(node.features)]
        if node.table is not None:
            found.append(((*at, "table", "uri"), node.table.uri))
    found.append((("spec", "model", "uri"), model_uri))
    return found


def _of_features(features: FeatureInput) -> list[tuple[tuple[str, ...], str]]:
    """What is read of features, with its path below them."""
    found: list[tuple[tuple[str, ...], str]] = [(("uri",), features.uri)]
    if features.ids_uri is not None:
        found.append((("idsUri",), features.ids_uri))
    if features.scaling is not None and features.scaling.uri is not None:
        found.append((("scaling", "uri"), features.scaling.uri))
    return found


def _relation(output: str, other: str) -> str | None:
    ours, theirs = _segments(output), _segments(other)
    if ours == theirs:
        return "is also"
    if ours[: len(theirs)] == theirs:
        return "lies inside"
    if theirs[: len(ours)] == ours:
        return "contains"
    return None


def _segments(uri: str) -> list[str]:
    """Scheme and path segments, so that ``s3://b/ab`` is not inside ``s3://b/a``."""
    scheme, _, path = uri.partition("://")
    if scheme == "file":
        path = posixpath.normpath(path)
    return [scheme, *(part for part in path.split("/") if part)]


def _dotted(path: tuple[str | int, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")
