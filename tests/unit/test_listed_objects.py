"""Every object that a run opens is in the one list of what its result depends on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from safetensors.numpy import load_file, save_file

from embertide.engine.planning.base_version import change_since
from embertide.engine.planning.inputs import layer_key, list_inputs
from embertide.io.storage.opening import as_uri, open_storage
from embertide.io.storage.protocol import Storage
from embertide.spec.manifest import load_manifest
from tests.support.run_here import run_here
from tests.support.small_job import NODES, SmallJob

OPENING = ("read", "read_range", "read_into", "open")


class Recording:
    """A storage that notes which objects are opened."""

    def __init__(self) -> None:
        self._storage, self.opened = open_storage(None), set[str]()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._storage, name)
        if name not in OPENING:
            return method

        def opening(uri: str, *args: Any, **more: Any) -> Any:
            self.opened.add(as_uri(uri))
            return method(uri, *args, **more)

        return opening


def weights_in_folder(_job: SmallJob) -> None:
    """As most models are."""


def weights_elsewhere(job: SmallJob) -> Path:
    registry = job.folder / "registry"
    registry.mkdir()
    return _move(job, registry / "w.safetensors", f"file://{registry}/w.safetensors")


def weights_beside(job: SmallJob) -> Path:
    return _move(job, job.folder / "w.safetensors", "../w.safetensors")


def weights_hidden(job: SmallJob) -> Path:
    return _move(job, job.model / "_w.safetensors", "_w.safetensors")


def weights_below_hidden(job: SmallJob) -> Path:
    (job.model / "_new").mkdir()
    return _move(job, job.model / "_new" / "w.safetensors", "_new/w.safetensors")


def weights_of_index(job: SmallJob) -> Path:
    """An index elsewhere, and the files beside it that it lists."""
    registry = job.folder / "registry"
    registry.mkdir()
    tensors = load_file(job.model / "weights.safetensors")
    names = sorted(tensors)
    halves = {"a.safetensors": names[:2], "_b.safetensors": names[2:]}
    for file, own in halves.items():
        save_file({name: tensors[name] for name in own}, registry / file)
    places = {name: file for file, own in halves.items() for name in own}
    (registry / "w.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (job.model / "weights.safetensors").unlink()
    _name(job, f"file://{registry}/w.safetensors.index.json")
    return registry / "_b.safetensors"


def text_alone(job: SmallJob) -> Path:
    """The model is named by its text, so that its folder is not listed."""
    job.write_manifest(model__uri="model/model.yaml")
    return job.model / "weights.safetensors"


def many_inputs(job: SmallJob) -> None:
    """Each kind of input that a job may have beside these: scaling, nodes, pairs, a reference."""
    ids = np.arange(NODES)
    np.savez(job.folder / "scaler.npz", mean=np.ones(4), scale=np.full(4, 2.0))
    for name in ("nodes", "pairs"):
        (job.folder / name).mkdir()
    pq.write_table(pa.table({"id": ids}), job.folder / "nodes" / "part.parquet")
    pairs = pa.table({"src": ids[:3], "dst": ids[3:6]})
    pq.write_table(pairs, job.folder / "pairs" / "part.parquet")
    job.write_manifest(
        input__nodes__0__features__scaling={"uri": "scaler.npz"},
        input__nodes__0__table={"uri": "nodes/", "format": "parquet", "idColumn": "id"},
        input__nodes__0__ids="int64",
        input__pairs={"uri": "pairs/", "format": "parquet", "score": "dot"},
    )


def targets(job: SmallJob) -> None:
    (job.folder / "wanted").mkdir()
    pq.write_table(pa.table({"id": [3, 5]}), job.folder / "wanted" / "part.parquet")
    table = {"uri": "wanted/", "format": "parquet", "idColumn": "id"}
    job.write_manifest(inference__targets={"table": table})


def _move(job: SmallJob, to: Path, name: str) -> Path:
    (job.model / "weights.safetensors").rename(to)
    _name(job, name)
    return to


def _name(job: SmallJob, weights: str) -> None:
    text = job.model / "model.yaml"
    text.write_text(yaml.safe_dump({**yaml.safe_load(text.read_text()), "weights": weights}))


OUTSIDE = (
    weights_elsewhere, weights_beside, weights_hidden, weights_below_hidden, weights_of_index,
    text_alone,
)  # fmt: skip


@pytest.mark.parametrize("arrange", [weights_in_folder, *OUTSIDE, many_inputs, targets])
def test_a_run_opens_nothing_that_is_not_listed(
    arrange: Callable[[SmallJob], object], tmp_path: Path
) -> None:
    made, storage = SmallJob.make(tmp_path), Recording()
    arrange(made)
    job = load_manifest(made.manifest)
    listed = run_here(cast(Storage, storage), job)
    own = f"file://{made.output}/"
    assert {uri for uri in storage.opened if not uri.startswith(own)} <= listed


@pytest.mark.tier(2)
@pytest.mark.parametrize("arrange", OUTSIDE)
def test_other_weights_are_another_version_wherever_they_are(
    arrange: Callable[[SmallJob], Path], tmp_path: Path
) -> None:
    made, storage = SmallJob.make(tmp_path), open_storage(None)
    weights = arrange(made)
    job = load_manifest(made.manifest)
    auto = job.spec.refresh.model_copy(update={"mode": "auto"})
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"refresh": auto})})
    run_here(storage, job)
    before = list_inputs(storage, job)
    assert change_since(storage, job, before)[1] == ""
    save_file({name: 2 * of for name, of in load_file(weights).items()}, weights)
    after = list_inputs(storage, job)
    change = change_since(storage, job, after)[1]
    assert change.startswith("the model's file://")
    assert change.endswith(f"/{weights.name} has changed")
    # Rows of layers before the weights that changed may be gone on from.
    assert layer_key(job, after) == layer_key(job, before)
