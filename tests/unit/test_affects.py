"""What a field of a job affects is declared once, and digest, hash and job.json follow from it."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
import yaml
from pydantic import Field

from embertide.spec.affects import Affects, without
from embertide.spec.base import SpecModel
from embertide.spec.inference import Inference
from embertide.spec.job_digest import job_digest
from embertide.spec.manifest import EmbeddingJob, JobSpec, load_manifest
from embertide.spec.output import Output
from embertide.spec.workers import Workers
from embertide_operator.pods.children import config_map, spec_hash
from tests.support.manifests import EXAMPLE, put

DATA: dict[str, Any] = yaml.safe_load(EXAMPLE)
RESULT, WORKERS, OPERATOR = Affects.RESULT, Affects.WORKERS, Affects.OPERATOR
CHANGES: dict[str, tuple[Any, Affects]] = {
    "input.maxShrink": ("10%", WORKERS),
    "input.newObjects": ("ignore", WORKERS),
    "input.edges.0.selfLoops": ("addToAll", RESULT | WORKERS),
    "input.edges.0.minEdges": (5, WORKERS),
    "input.edges.0.ready": ({"object": "_SUCCESS"}, WORKERS),
    "input.nodes.0.minNodes": (5, WORKERS),
    "input.nodes.0.features.ready": ({"within": "1h"}, WORKERS),
    "input.nodes.0.features.uri": ("s3://shop/features-2/", RESULT | WORKERS),
    "model.uri": ("s3://shop/models/gcn-8/", RESULT | WORKERS),
    "inference.fanout": ([50, 50, 50], RESULT | WORKERS),
    "inference.targets": ({"table": {"uri": "s3://shop/w", "format": "csv"}}, RESULT | WORKERS),
    "inference.rows": ("bfloat16", RESULT | WORKERS),
    "inference.groupBytes": (65536, WORKERS),
    "inference.depth": (4, WORKERS),
    "inference.groupsPerMessage": (4, WORKERS),
    "inference.checkedRows": (1000, Affects.NEITHER),
    "output.uri": ("s3://shop/elsewhere", Affects.NEITHER),
    "output.format": ("npy", RESULT),
    "output.dtype": ("float16", RESULT),
    "output.nodeTypes": (["node"], RESULT),
    "output.results": (["layer1"], RESULT),
    "output.keepVersions": (2, Affects.NEITHER),
    "output.compare": (False, Affects.NEITHER),
    "output.gate": ({"mode": "warn"}, Affects.NEITHER),
    "output.delta": ({"tolerance": 0.01}, Affects.NEITHER),
    "workers.grid": ({"graph": 4, "feature": 2}, WORKERS),
    "workers.count": (8, WORKERS),
    "workers.memory": ("3GiB", WORKERS),
    "workers.deviceMemory": ("8GiB", WORKERS),
    "workers.scratch": ("/mnt/disk", WORKERS),
    "workers.scratchStorageClass": ("fast", WORKERS | OPERATOR),
    "workers.device": ("cpu", WORKERS),
    "workers.image": ("embertide:2", WORKERS | OPERATOR),
    "workers.resources": ({"limits": {"cpu": "3"}}, WORKERS),
    "workers.serviceAccountName": ("reader", WORKERS | OPERATOR),
    "workers.podTemplate": ({"metadata": {"labels": {"a": "b"}}}, WORKERS | OPERATOR),
    "storage.region": ("eu-west-3", WORKERS),
    "freshness": ({"maxAge": "27h"}, OPERATOR),
    "refresh": ({"mode": "full"}, Affects.NEITHER),
    "push": ({"uri": "lancedb+s3://shop/lance"}, Affects.NEITHER),
    "managedBy": ("kueue.x-k8s.io/multikueue", OPERATOR),
    "operatorClass": ("gpu", OPERATOR),
    "suspend": (True, OPERATOR),
    "backoffLimit": (9, OPERATOR),
    "activeDeadlineSeconds": (77, OPERATOR),
    "preRunningDeadlineSeconds": (77, OPERATOR),
    "progressDeadlineSeconds": (77, OPERATOR),
    "ttlSecondsAfterFinished": (77, OPERATOR),
}


def job(data: dict[str, Any]) -> EmbeddingJob:
    return load_manifest(yaml.safe_dump(data))


def at_workers(given: EmbeddingJob) -> dict[str, Any]:
    """The spec that workers get."""
    spec: dict[str, Any] = json.loads(config_map(given, "uid")["data"]["job.json"])["spec"]
    return spec


@pytest.mark.parametrize("path", CHANGES)
def test_a_change_affects_what_its_field_declares(path: str) -> None:
    value, affects = CHANGES[path]
    base = put(
        put(DATA, "spec.workers", {"device": "cuda", "resources": {"limits": {"cpu": "2"}}}),
        "metadata.namespace",
        "shop",
    )
    before, after = job(base), job(put(base, f"spec.{path}", value))
    assert before != after
    assert (job_digest(after) != job_digest(before)) is (RESULT in affects)
    assert (spec_hash(after) != spec_hash(before)) is (WORKERS in affects)
    assert (at_workers(after) == at_workers(before)) is (OPERATOR in affects)


def _aliases(model: type[SpecModel], before: str = "") -> set[str]:
    return {f"{before}{field.alias}" for field in model.model_fields.values()}


def test_no_field_is_forgotten_here() -> None:
    """A field that inherits what it should not would show in no other test."""
    parts = {"input", "model", "inference", "output", "workers", "storage"}
    fields = _aliases(JobSpec) - parts
    for name, model in {"inference": Inference, "output": Output, "workers": Workers}.items():
        fields |= _aliases(model, f"{name}.")
    assert fields - CHANGES.keys() == {"inference.seed"}  # counts with sampling alone


class Inner(SpecModel):
    plain: int = 0
    late: Annotated[int | None, WORKERS] = Field(default=None, ge=1)


class Outer(SpecModel):
    inner: Annotated[Inner | None, RESULT | WORKERS] = None
    several: Annotated[list[Inner], WORKERS] = Field(default_factory=list)
    free: Annotated[dict[str, Any], OPERATOR] = Field(default_factory=dict)


def test_fields_inherit_what_the_one_around_them_declares() -> None:
    assert without(Outer, lambda affects: RESULT not in affects) == {
        "inner": {"late": True},
        "several": True,
        "free": True,
    }
    assert without(Outer, lambda affects: OPERATOR in affects) == {"free": True}
    assert without(Outer, lambda affects: affects == WORKERS) == {
        "inner": {"late": True},
        "several": True,
    }


def test_fields_of_a_list_are_left_out_of_each_item() -> None:
    class Listed(SpecModel):
        items: Annotated[list[Inner], RESULT]

    excluded = without(Listed, lambda affects: RESULT not in affects)
    assert excluded == {"items": {"__all__": {"late": True}}}
    listed = Listed(items=[Inner(plain=1, late=2), Inner(plain=3)])
    assert listed.model_dump(exclude=excluded) == {"items": [{"plain": 1}, {"plain": 3}]}


def test_a_field_that_declares_nothing_is_refused() -> None:
    class Undeclared(SpecModel):
        new: int = 0

    with pytest.raises(TypeError, match=r"Undeclared\.new does not declare what it affects"):
        without(Undeclared, lambda _affects: True)
