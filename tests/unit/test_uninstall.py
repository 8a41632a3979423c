"""What the hook of ``helm uninstall`` removes, and what it leaves to others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from embertide_operator.job.ownership import CONFIG_MAP
from embertide_operator.uninstall import (
    is_installed,
    remove_lease,
    remove_signs,
    remove_test_jobs,
)
from tests.support.api_server import api_server
from tests.support.operator_world import SETTINGS, raw_job

OURS = replace(SETTINGS, own_namespace="tools", own_name="op")


def signs(namespace: str, *operators: str) -> dict[str, Any]:
    meta = {"name": CONFIG_MAP, "namespace": namespace}
    return {"metadata": meta, "data": dict.fromkeys(operators, "{}")}


@pytest.mark.parametrize("watched", [(), ("shop", "shared", "away", "other")])
def test_its_signs_of_life_go_and_those_of_others_stay(watched: tuple[str, ...]) -> None:
    """``away`` has none, and ``other`` one of another operator."""
    with api_server() as server:
        for item in (
            signs("shop", "tools.op"),
            signs("shared", "tools.op", "b.op"),
            signs("other", "b.op"),
        ):
            server.put("configmaps", item)
        remove_signs(server.api(), replace(OURS, namespaces=watched))
        assert server.find("configmaps", "shop", CONFIG_MAP) is None
        for namespace in ("shared", "other"):
            left = server.find("configmaps", namespace, CONFIG_MAP)
            assert left is not None
            assert left["data"].keys() == {"b.op"}


def test_an_operator_that_is_there_is_seen() -> None:
    """As where its templates were applied with the hooks; helm deletes it before they run."""
    with api_server() as server:
        assert not is_installed(server.api(), OURS)
        server.put("deployments", {"metadata": {"name": "op", "namespace": "tools"}})
        assert is_installed(server.api(), OURS)
        going = {"name": "op", "namespace": "tools", "deletionTimestamp": "2026-11-21T11:00:00Z"}
        server.put("deployments", {"metadata": going})
        assert not is_installed(server.api(), OURS)


def test_the_lease_goes_and_nothing_is_wrong_without_it() -> None:
    with api_server() as server:
        server.put("leases", {"metadata": {"name": "op", "namespace": "tools"}})
        for _ in range(2):
            remove_lease(server.api(), OURS)
        assert server.find("leases", "tools", "op") is None


def test_jobs_of_the_test_go_and_those_of_users_stay() -> None:
    labels = {"app.kubernetes.io/instance": "ember", "app.kubernetes.io/component": "test"}
    with api_server() as server:
        tiny = raw_job()
        tiny["metadata"] |= {"name": "tiny", "labels": labels}
        other = raw_job()
        other["metadata"] |= {"name": "other", "labels": labels | {
            "app.kubernetes.io/instance": "another"}}  # fmt: skip
        for item in (tiny, other, raw_job()):
            server.put("embeddingjobs", item)
        remove_test_jobs(server.api(), "shop", "ember")
        assert server.find("embeddingjobs", "shop", "tiny") is None
        assert server.find("embeddingjobs", "shop", "other") is not None
        assert server.find("embeddingjobs", "shop", "products") is not None
        server.refuse["list", "embeddingjobs"] = 404
        remove_test_jobs(server.api(), "shop", "ember")  # the definition is gone, too
