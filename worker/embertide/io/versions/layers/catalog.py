"""What is kept, for people: keys, layers, sizes and ages."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from embertide.io.storage.protocol import ObjectInfo, Storage
from embertide.io.versions.layers.attempts import in_use
from embertide.io.versions.layers.places import SEAL, key_uri
from embertide.io.versions.layers.seals import Damaged, from_bytes
from embertide.io.versions.layers.sweeping import folders_of, keys, objects_of, referred, remove


@dataclass(frozen=True)
class KeptLayers:
    """The layers of one key.

    Attributes:
        layers: numbers of those that are complete, from 1; ``of`` is how many the model has.
        size: bytes of all objects, those of incomplete layers too, and of the blocks in the folders
            of earlier keys that its seals refer to.
        modified: when something of it was last written, in seconds since the epoch.
        in_use: an attempt may read or write them.
        with_digests: digests of rows are there: of a published version, from which the next run may
            go on.
        with_graph: the graph of a relation is there, which is read in place of its edges.
        problems: records that are damaged; their layers are computed again.
    """

    key: str
    uri: str
    layers: list[int]
    of: int
    size: int
    modified: float
    in_use: bool
    with_digests: bool
    with_graph: bool
    problems: list[str]


def list_layers(storage: Storage, output_uri: str) -> list[KeptLayers]:
    """What is kept below an output, the oldest first.

    Raises:
        StorageError: the store refuses or does not answer.
    """
    blocks = {key: referred(storage, output_uri, [key]) for key in keys(storage, output_uri)}
    kept = [_describe(storage, output_uri, key, blocks) for key in blocks]
    return sorted((item for item in kept if item is not None), key=lambda item: item.modified)


def _describe(
    storage: Storage, output_uri: str, key: str, blocks: Mapping[str, Mapping[str, int]]
) -> KeptLayers | None:
    """None where all objects are blocks that later keys refer to, and count there.

    Args:
        blocks: key -> URI -> bytes of the blocks that its seals refer to.
    """
    objects, ours = objects_of(storage, output_uri, key), blocks[key]
    theirs = {uri for other, of in blocks.items() if other != key for uri in of}
    own = {info.uri: info.size for info in objects if info.uri not in theirs}
    sizes = {**ours, **own}
    if not sizes:
        return None
    layers, of, problems = set[int](), 0, list[str]()
    with_digests = with_graph = False
    for info in objects:
        if info.uri.endswith(SEAL):
            name = info.uri.rpartition("/")[2].removesuffix(SEAL)
            try:
                seal = from_bytes(info.uri, storage.read(info.uri), key, name)
            except Damaged as error:
                problems.append(str(error))
                continue
            if seal.edges is not None:
                with_graph = True
                continue
            if seal.layer == 0:
                with_digests = True
                continue
            layers.add(seal.layer)
            of = seal.layers
    return KeptLayers(
        key=key,
        uri=key_uri(output_uri, key),
        layers=sorted(layers),
        of=of,
        size=sum(sizes.values()),
        modified=_newest(objects),
        in_use=in_use(storage, output_uri, key, objects, time.time()),
        with_digests=with_digests,
        with_graph=with_graph,
        problems=problems,
    )


def _newest(objects: list[ObjectInfo]) -> float:
    return max((info.modified for info in objects), default=0.0)


def remove_layers(storage: Storage, output_uri: str, kept: list[KeptLayers]) -> list[KeptLayers]:
    """Remove those that no attempt uses; returns them. Blocks that those in use refer to stay.

    Raises:
        StorageError: the store does not allow or fails to remove.
    """
    unused = [item for item in kept if not item.in_use]
    stay = {item.key for item in kept if item.in_use}
    gone = sorted(folders_of(storage, output_uri, [item.key for item in unused]) - stay)
    remove(storage, output_uri, {key: objects_of(storage, output_uri, key) for key in gone})
    return unused
