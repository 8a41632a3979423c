"""A made-up graph of several node types: users, items and tags, and who has to do with whom.

Six relations in four edge lists, each an RMAT of its own between its two types; two of the lists
are read both ways. Tags have no features: they get theirs from the items that have them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from embertide.edge.synth.options import SynthOptions
from embertide.edge.synth.write import Progress, Written, write_edges, write_features, write_nodes
from embertide.io.storage.protocol import Storage

TYPES = ("user", "item", "tag")
WITH_FEATURES = ("user", "item")


@dataclass(frozen=True)
class EdgeList:
    """One edge type, and the one that has its edges the other way round, if any.

    Attributes:
        share: of all edges, in sixteenths.
    """

    name: str
    source: str
    destination: str
    share: int
    reverse: str = ""


EDGE_LISTS = (
    EdgeList("buys", "user", "item", 6, "bought_by"),
    EdgeList("follows", "user", "user", 4),
    EdgeList("similar", "item", "item", 3),
    EdgeList("has", "item", "tag", 3, "of"),
)


def relations() -> list[tuple[str, str, str]]:
    """(source type, name, destination type) of all six."""
    found = []
    for one in EDGE_LISTS:
        found.append((one.source, one.name, one.destination))
        if one.reverse:
            found.append((one.destination, one.reverse, one.source))
    return found


def counts(options: SynthOptions) -> dict[str, int]:
    """Node type -> nodes: of eight about five users and three items, and one tag for 64 nodes."""
    tags = max(1, options.nodes // 64)
    items = max(1, options.nodes * 3 // 8)
    return {"user": options.nodes - items - tags, "item": items, "tag": tags}


def write_all_edges(
    storage: Storage, uri: str, options: SynthOptions, progress: Progress
) -> Written:
    """The edge lists, each in a folder of its name under ``uri``."""
    there = counts(options)
    written: list[Written] = []
    for number, one in enumerate(EDGE_LISTS):
        size = options.edges * one.share // 16
        if number == 0:
            size += options.edges - sum(options.edges * other.share // 16 for other in EDGE_LISTS)
        of_list = replace(
            options, hetero=False, nodes=there[one.source], edges=size, seed=_seed(options, number)
        )
        tell = _behind(sum(part.rows for part in written), options.edges, progress)
        ends = there[one.destination]
        written.append(write_edges(storage, f"{uri}{one.name}/", of_list, tell, ends))
    return _joined(written)


def _behind(rows: int, total: int, progress: Progress) -> Progress:
    """Progress of a part that comes after so many rows of all."""

    def tell(what: str, done: int, _of_part: int) -> None:
        progress(what, rows + done, total)

    return tell


def write_all_features(
    storage: Storage, uri: str, ids_uri: str, nodes_uri: str, options: SynthOptions,
    progress: Progress,
) -> Written:  # fmt: skip
    """The features of each type that has some, and the list of those nodes that have none."""
    written: list[Written] = []
    for number, (name, of_type) in enumerate(_by_type(options)):
        if name in WITH_FEATURES:
            of_type = replace(of_type, seed=_seed(options, len(EDGE_LISTS) + number))
            places = f"{uri}{name}/", f"{ids_uri}{name}/"
            written.append(write_features(storage, *places, of_type, progress))
        elif options.ids != "dense":
            written.append(write_nodes(storage, f"{nodes_uri}{name}/", of_type))
    return _joined(written)


def _by_type(options: SynthOptions) -> Iterator[tuple[str, SynthOptions]]:
    for name, count in counts(options).items():
        yield name, replace(options, hetero=False, nodes=count)


def _seed(options: SynthOptions, number: int) -> int:
    """The seed of one part, so that no two are alike."""
    return int(np.random.SeedSequence(options.seed, spawn_key=(number,)).generate_state(1)[0])


def _joined(parts: list[Written]) -> Written:
    uris = tuple(uri for part in parts for uri in part.uris)
    return Written(uris, sum(part.rows for part in parts))


def edge_inputs(uri: str, plain: dict[str, Any]) -> list[dict[str, Any]]:
    """``spec.input.edges``; ``plain`` is what all lists have."""
    return [
        {
            "name": one.name,
            "sourceType": one.source,
            "destinationType": one.destination,
            **plain,
            "uri": f"{uri}{one.name}/",
            **({"reverse": one.reverse} if one.reverse else {}),
        }
        for one in EDGE_LISTS
    ]
