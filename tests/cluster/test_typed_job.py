"""A job of several node types on Kubernetes, and what people see of its types and relations."""

from __future__ import annotations

import json

import pytest

from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.jobs import Jobs, workers
from tests.support.cluster.typed_jobs import TypedInputs

pytestmark = pytest.mark.cluster

PUBLISHED = ["item", "user"]
"""Of three types; embeddings of tags are needed on the way to those of items."""
WIDTH = 4


@pytest.fixture(scope="module")
def shop(cluster: KubernetesCluster) -> TypedInputs:
    """Users, items and tags: 512 nodes, six relations."""
    size = ("--scale=9", "--edge-factor=4", "--width=8", "--hidden=8", f"--embedding={WIDTH}")
    return TypedInputs.make(cluster, "shop", "--hetero", "--layers=2", *size)


def test_a_typed_job_publishes_by_type_and_says_so(shop: TypedInputs, jobs: Jobs) -> None:
    output = f"{jobs.root}/embeddings"
    job = shop.job("shop", output, workers=workers(2, 1))
    job["spec"]["output"]["nodeTypes"] = PUBLISHED
    jobs.apply(job)
    status = jobs.complete("shop")
    shop.check_types(output, PUBLISHED)

    rows = {name: shop.counts[name] for name in PUBLISHED}
    told = {one["name"]: (one["rows"], one["dim"]) for one in status["output"]["types"]}
    assert told == {name: (count, WIDTH) for name, count in rows.items()}
    assert (status["output"]["rows"], status["output"]["dim"]) == (sum(rows.values()), WIDTH)
    report = status["report"]
    assert {one["name"]: one["nodes"] for one in report["nodeTypes"]} == shop.counts
    edges = {name: len(ends[0]) for name, ends in shop.edges.items()}
    assert {one["name"]: one["edges"] for one in report["relations"]} == edges
    assert (report["nodes"], report["edges"]) == (sum(shop.counts.values()), sum(edges.values()))

    shown = f"item {rows['item']} x {WIDTH}, user {rows['user']} x {WIDTH}"
    heads, line = jobs.kubectl("get", "ej", "-o", "wide").splitlines()
    assert "EMBEDDINGS" in heads.split()
    assert f"{shown}   " in line
    described = jobs.kubectl("describe", "ej", "shop").split()
    for name, count in rows.items():
        assert " ".join(["Name:", name, "Rows:", str(count)]) in " ".join(described)
    (event,) = (one for one in events(jobs) if one["reason"] == "Published")
    total = sum(rows.values())
    version, uri = (status["output"][field] for field in ("version", "uri"))
    assert event["message"] == f"version {version}: {total} rows ({shown}) at {uri}"


def events(jobs: Jobs) -> list[dict[str, str]]:
    """Of all jobs of the namespace."""
    found: list[dict[str, str]] = json.loads(jobs.kubectl("get", "events", "-o", "json"))["items"]
    return found
