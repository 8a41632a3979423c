"""What a run asks of the system's memory and disk before and while it reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from embertide.launch.sequence import first_read
from embertide.planning.inputs import list_inputs
from embertide.spec.manifest import load_manifest
from embertide.storage.opening import open_storage
from embertide.telemetry.memory import arrow_on_the_heap
from tests.support.small_job import SmallJob


def test_arrow_is_on_the_heap_for_a_while() -> None:
    before = pa.default_memory_pool().backend_name
    with arrow_on_the_heap():
        assert pa.default_memory_pool().backend_name == "system"
    assert pa.default_memory_pool().backend_name == before


def test_features_and_their_ids_are_read_first_each_object_once(tmp_path: Path) -> None:
    job = load_manifest(Path(SmallJob.make(tmp_path).manifest))
    inputs = list_inputs(open_storage(None), job)
    ((name, nodes),) = inputs.by_nodes.items()
    uri, split = nodes.features[0].uri, replace(nodes.features[0], ids_uri="file:///ids")
    given = replace(inputs, by_nodes={name: replace(nodes, features=[split, split])})
    assert first_read(given) == [uri, "file:///ids"]
