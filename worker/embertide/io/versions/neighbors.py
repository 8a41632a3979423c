"""The nearest embeddings of some ids, exactly, without an index and without holding N x D.

A published version is looked at far more often than it needs an index: a check after a run, a
question about one product. Two passes over its parts answer it in bounded memory: one finds
the vectors of the ids asked for, one keeps the k best rows for each of them.
"""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from embertide.errors import InputError
from embertide.io.storage.protocol import Storage
from embertide.io.versions.manifest import TypeEntry, read_manifest, types_in
from embertide.io.versions.reading import choose_result, read_part
from embertide.spec.version_names import version_uri
from embertide.spec.whole_numbers import whole_number

Metric = Literal["cosine", "dot", "l2"]
# (ids, values): ids an int64 array or an array of strings of length n, values float [n, D].
Batch = tuple[Any, npt.NDArray[Any]]
# Starts the stream again; batches come in the same order every time.
Batches = Callable[[], Iterable[Batch]]

_Floats = npt.NDArray[np.float64]
_HINTS = 3
_HINT_CUTOFF = 0.7


@dataclass(frozen=True)
class Neighbor:
    """One near row; ``score`` is a similarity, or with l2 a distance."""

    id: int | str
    score: float


@dataclass(frozen=True)
class Answer:
    """The nearest rows of each id that is there, and why others are not.

    Attributes:
        found: id -> its nearest rows, best first; the id is as in the version.
        unknown: id as asked for -> what to tell of it.
        types: id -> its node type, of those that are of another one than the rows.
    """

    found: dict[str, list[Neighbor]]
    unknown: dict[str, str]
    types: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Elsewhere:
    """Rows of another node type, as wide as those that are compared, in which ids may be."""

    node_type: str
    batches: Batches


def nearest(
    batches: Batches,
    wanted: Sequence[str],
    k: int,
    metric: Metric = "cosine",
    source: str = "",
    prefix: str = "",
    elsewhere: Sequence[Elsewhere] = (),
    own: bool = True,
) -> Answer:
    """The ``k`` nearest rows of every wanted id, best first, the id itself left out.

    Equal scores keep the order of the rows. Fewer than ``k`` come back when there are no more
    rows. Scores are computed in float64; a zero vector has cosine 0 with everything. Reads the
    stream twice.

    Args:
        prefix: only ids that begin with it are compared with. A wanted id that is not there is
            looked up with the prefix before it.
        elsewhere: where wanted ids are looked up that are not there: items for a user.
        own: whether ids are looked up among the rows themselves.

    Raises:
        InputError: there is a prefix, but the ids are numbers.
    """
    vectors = _vectors_of(batches, wanted, prefix) if own else {}
    names = {name: _full(name, prefix, vectors) for name in dict.fromkeys(wanted)}
    left = [name for name, full in names.items() if full is None]
    types: dict[str, str] = {}
    unknown: dict[str, str] = {}
    there = {other.node_type: _vectors_of(other.batches, left, "") for other in elsewhere if left}
    for name in left:
        places = [node_type for node_type, found in there.items() if name in found]
        if len(places) == 1:
            names[name], types[name] = name, places[0]
            vectors[name] = there[places[0]][name]
        elif places:
            unknown[name] = (
                f"id {name!r} is in several node types, {', '.join(places)}; choose one"
                " (from_type=, or --from-type of a command)"
            )
        else:
            first = batches if own else elsewhere[0].batches
            unknown[name] = _unknown(first, prefix + name if own else name, source)
            if own and elsewhere:
                others = ", ".join(other.node_type for other in elsewhere)
                unknown[name] += f"; node types {others} do not have it either"
    known = list(dict.fromkeys(full for full in names.values() if full is not None))
    if not known:
        return Answer({}, unknown)
    queries = np.stack([vectors[name] for name in known])
    best: list[list[tuple[float, int, int | str]]] = [[] for _ in known]
    start = 0
    for ids, values in batches():
        ids = _plain_ids(ids)
        scores = _closeness(queries, np.asarray(values, np.float64), metric)
        scores[:, ~_with_prefix(ids, prefix)] = -np.inf
        for q, name in enumerate(known):
            if name not in types:
                scores[q, _matches(ids, name)] = -np.inf
            _keep_best(best[q], scores[q], ids, start, k)
        start += len(ids)
    sign = -1.0 if metric == "l2" else 1.0
    found = {
        name: [Neighbor(found, sign * score) for score, _, found in sorted(heap, reverse=True)]
        for name, heap in zip(known, best, strict=True)
    }
    return Answer(found, unknown, types)


def nearest_in_version(
    storage: Storage,
    output_uri: str,
    version: str,
    wanted: Sequence[str],
    k: int,
    metric: Metric = "cosine",
    prefix: str = "",
    *,
    node_type: str | None = None,
    from_type: str | None = None,
    result: str | None = None,
) -> Answer:
    """The ``k`` nearest embeddings of some ids in a version, as `nearest` finds them.

    Args:
        node_type: whose embeddings are compared with, in a version of several.
        from_type: whose ids are meant; without, those of ``node_type``, and where it does not
            have one those of another type whose embeddings have as many values.

    Raises:
        InputError: no such type or result, or none given where there are several; lists them. Or
            the embeddings of the two types have other numbers of values.
        ObjectMissing: no such version; lists those there are.
        OutputError: a part is missing or damaged.
    """
    manifest, _ = read_manifest(storage, output_uri, version)
    uri = version_uri(output_uri, version)
    target = choose_result(uri, manifest, node_type, result)
    others = [one for one in types_in(manifest) if one.result == target.result and one != target]
    if from_type is not None:
        source = choose_result(uri, manifest, from_type, result)
        others = [source]
        if source.dim != target.dim:
            raise InputError(
                f"{uri}: embeddings of {from_type} have {source.dim} values and those of"
                f" {target.name} {target.dim}; only those of one length can be compared"
            )

    def rows_of(entry: TypeEntry) -> Batches:
        return lambda: chain.from_iterable(
            read_part(storage, uri, part, entry.dim) for part in entry.digests
        )

    own = from_type is None or others == [target]
    other_length = [one.name for one in others if one.dim != target.dim]
    others = [one for one in others if one.dim == target.dim and one != target]
    named = f"{output_uri} version {version}"
    shown = target if own else others[0]
    answer = nearest(
        rows_of(target),
        wanted,
        k,
        metric,
        f"{named}, {shown.name}" if shown.name else named,
        prefix,
        [Elsewhere(one.name, rows_of(one)) for one in others],
        own,
    )
    if not other_length:
        return answer
    why = f"; embeddings of {', '.join(other_length)} have another length than {target.dim}"
    return replace(answer, unknown={name: text + why for name, text in answer.unknown.items()})


def _full(name: str, prefix: str, known: Container[str]) -> str | None:
    """The id that a name stands for, None if there is none."""
    return next((full for full in (name, prefix + name) if full in known), None)


def _with_prefix(ids: npt.NDArray[Any], prefix: str) -> npt.NDArray[np.bool_]:
    if not prefix:
        return np.ones(len(ids), np.bool_)
    if ids.dtype.kind in "iu":
        raise InputError(f"prefix {prefix!r} needs string ids, but these are whole numbers")
    return np.fromiter((text.startswith(prefix) for text in ids), np.bool_, len(ids))


def _keep_best(
    heap: list[tuple[float, int, int | str]],
    scores: _Floats,
    ids: npt.NDArray[Any],
    start: int,
    k: int,
) -> None:
    """Merge a batch into the k best; entries are (closeness, minus row number, id)."""
    # A stable sort, so that among equal scores the first rows stay, on every machine.
    for row in np.argsort(-scores, kind="stable")[:k]:
        score = float(scores[row])
        entry = (
            score,
            -(start + int(row)),
            ids[row] if isinstance(ids[row], str) else int(ids[row]),
        )
        if score == -np.inf:
            return
        if len(heap) < k:
            heapq.heappush(heap, entry)
        elif entry > heap[0]:
            heapq.heapreplace(heap, entry)
        else:
            return


def _closeness(queries: _Floats, values: _Floats, metric: Metric) -> _Floats:
    """``[q, n]``, larger is closer (distances negated)."""
    products: _Floats = queries @ values.T
    if metric == "dot":
        return products
    if metric == "cosine":
        lengths = np.outer(_lengths(queries), _lengths(values))
        zeros = np.zeros_like(products)
        return np.divide(products, lengths, out=zeros, where=lengths > 0)
    squares = np.square(queries).sum(1)[:, None] + np.square(values).sum(1) - 2 * products
    distances: _Floats = np.sqrt(np.maximum(squares, 0.0))
    return -distances


def _lengths(values: _Floats) -> _Floats:
    lengths: _Floats = np.sqrt(np.square(values).sum(1))
    return lengths


def _plain_ids(ids: Any) -> npt.NDArray[Any]:
    """Ids as a numpy array: int64, or str objects from an arrow array."""
    if isinstance(ids, np.ndarray):
        return ids
    return np.array(ids.to_pylist(), dtype=object)


def _matches(ids: npt.NDArray[Any], name: str) -> npt.NDArray[np.bool_]:
    if ids.dtype.kind in "iu":
        number = whole_number(name)
        return ids == number if number is not None else np.zeros(len(ids), np.bool_)
    return np.asarray(ids == name, np.bool_)


def _vectors_of(batches: Batches, wanted: Sequence[str], prefix: str) -> dict[str, _Floats]:
    """Id -> its ``[D]`` in float64, of the wanted ids with and without prefix that are there."""
    names = dict.fromkeys([*wanted, *(prefix + name for name in wanted)])
    found: dict[str, _Floats] = {}
    for ids, values in batches():
        plain = _plain_ids(ids)
        for name in names:
            if name not in found:
                rows = np.flatnonzero(_matches(plain, name))
                if len(rows):
                    found[name] = np.asarray(values[rows[0]], np.float64)
    return found


def _unknown(batches: Batches, name: str, source: str) -> str:
    """Why an id was not found: its nearest spellings, or the range of the numbers."""
    smallest, largest, count = 2**63, -(2**63), 0
    candidates: list[str] = []
    numbers = False
    for ids, _ in batches():
        plain = _plain_ids(ids)
        count += len(plain)
        if plain.dtype.kind in "iu" and len(plain):
            numbers = True
            smallest, largest = min(smallest, int(plain.min())), max(largest, int(plain.max()))
        else:
            candidates = _closest(name, candidates + _similar(name, plain))
    where = f" in {source}" if source else ""
    text = f"no id {name!r}{where}, which has {count:,} rows"
    if numbers and whole_number(name) is None:
        return text + "; its ids are whole numbers"
    if numbers:
        return text + f" with ids from {smallest} to {largest}"
    return text + (f"; did you mean {', '.join(candidates)}?" if candidates else "")


def _similar(name: str, ids: npt.NDArray[Any]) -> list[str]:
    """Strings worth a closer look: comparing spellings with every id would take minutes."""
    size, lower = len(name), name.lower()
    head, tail = lower[:1], lower[-1:]
    return [
        text
        for text in ids
        if abs(len(text) - size) <= 2
        and ((plain := text.lower())[:1] == head or plain[-1:] == tail)
    ]


def _closest(name: str, candidates: list[str]) -> list[str]:
    """The most similar spellings, where capital letters do not count."""
    lower = name.lower()
    scored = [
        (-difflib.SequenceMatcher(None, text.lower(), lower).ratio(), text)
        for text in dict.fromkeys(candidates)
    ]
    return [text for score, text in heapq.nsmallest(_HINTS, scored) if -score >= _HINT_CUTOFF]
