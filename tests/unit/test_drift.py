"""Objects that somebody changed by hand are applied again; not for the API server's own forms."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from embertide_operator.pods.drift import was_changed
from tests.support.operator_world import World

Object = dict[str, Any]


def container(statefulset: Object) -> Object:
    found: Object = statefulset["spec"]["template"]["spec"]["containers"][0]
    return found


def started() -> World:
    """A job whose two workers run."""
    world = World()
    world.reconcile()
    world.reconcile(3, pods=world.pods(world.running(), world.running()))
    return world


def set_image(children: Object) -> None:
    container(children["StatefulSet"])["image"] = "other:2"


def remove_variable(children: Object) -> None:
    container(children["StatefulSet"])["env"].pop()


def raise_limit(children: Object) -> None:
    container(children["StatefulSet"])["resources"]["limits"]["memory"] = "2Gi"


def remove_toleration(children: Object) -> None:
    children["StatefulSet"]["spec"]["template"]["spec"]["tolerations"].pop()


def relabel(children: Object) -> None:
    children["StatefulSet"]["metadata"]["labels"]["embertide.dev/attempt"] = "7"


def change_data(children: Object) -> None:
    children["ConfigMap"]["data"]["job.json"] = "{}"


def change_port(children: Object) -> None:
    children["Service"]["spec"]["ports"][0]["port"] = 80


def remove_address(children: Object) -> None:
    del children["Service"]["spec"]["publishNotReadyAddresses"]


def change_budget(children: Object) -> None:
    spec = children["PodDisruptionBudget"]["spec"]
    spec["selector"]["matchLabels"]["embertide.dev/job"] = "other"


@pytest.mark.parametrize(
    ("edit", "kind"),
    [
        (set_image, "StatefulSet"),
        (remove_variable, "StatefulSet"),
        (raise_limit, "StatefulSet"),
        (remove_toleration, "StatefulSet"),
        (relabel, "StatefulSet"),
        (change_data, "ConfigMap"),
        (change_port, "Service"),
        (remove_address, "Service"),
        (change_budget, "PodDisruptionBudget"),
    ],
)
def test_an_edit_by_hand_is_put_right(edit: Callable[[Object], None], kind: str) -> None:
    world = started()
    children = copy.deepcopy(world.seen.children)
    edit(children)
    decision = world.reconcile(1, children=children)
    assert [child["kind"] for child in decision.apply] == [kind]
    assert decision.scale_to_zero is None
    assert [child["kind"] for child in decision.reset_ports] == [kind] * (kind == "Service")
    assert world.reconcile(1).apply == []


def test_defaults_and_what_webhooks_add_are_left() -> None:
    world = started()
    children = copy.deepcopy(world.seen.children)
    statefulset = children["StatefulSet"]
    statefulset["spec"] |= {"revisionHistoryLimit": 10}
    container(statefulset)["env"].append({"name": "PROXY", "value": "http://proxy"})
    statefulset["spec"]["template"]["spec"]["containers"].append({"name": "mesh", "image": "m"})
    statefulset["metadata"]["annotations"]["team"] = "search"
    for port in children["Service"]["spec"]["ports"]:
        port |= {"protocol": "TCP", "targetPort": port["port"]}
    children["Service"]["spec"]["sessionAffinity"] = "None"
    assert world.reconcile(1, children=children).apply == []


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"limits": {"cpu": "1000m"}}, {"limits": {"cpu": "1"}}),
        ({"limits": {"cpu": 1, "memory": "1024Mi"}}, {"limits": {"cpu": "1", "memory": "1Gi"}}),
        ({"requests": {"cpu": 0.5}}, {"requests": {"cpu": "500m"}}),
        ({"emptyDir": {"sizeLimit": "1024Mi"}}, {"emptyDir": {"sizeLimit": "1Gi"}}),
        ({"env": [{"name": "A", "value": ""}]}, {"env": [{"name": "A"}]}),
        ({"nodeSelector": {}, "hostNetwork": False, "b": None, "c": {"d": []}}, {}),
        ({"apiVersion": "v1", "kind": "Service", "x": 1}, {"x": 1}),
        ({"volumes": [{"name": "b"}]}, {"volumes": [{"name": "a"}, {"name": "b"}]}),
        ({"ports": [{"port": 1}]}, {"ports": [{"port": 1}, {"port": 2}]}),
        ({"egress": [{"ports": [{"port": 1}]}]}, {"egress": [{"ports": [{"port": 1, "x": 1}]}]}),
        ({"podSelector": {}}, {"podSelector": {}}),
    ],
)
def test_forms_that_mean_the_same(wanted: Object, found: Object) -> None:
    assert not was_changed(wanted, found)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"limits": {"cpu": "1"}}, {"limits": {"cpu": "2"}}),
        ({"limits": {"cpu": "1"}}, {"limits": {}}),
        ({"limits": {"cpu": "1"}}, {"limits": {"cpu": "much"}}),
        ({"image": "1000m"}, {"image": "1"}),
        ({"enableServiceLinks": False}, {"enableServiceLinks": True}),
        ({"args": ["work"]}, {"args": ["work", "harder"]}),
        ({"args": ["work"]}, {}),
        ({"env": [{"name": "A", "value": ""}]}, {"env": [{"name": "A", "value": "1"}]}),
        ({"spec": {"a": 1}}, {"spec": None}),
        (
            {"egress": [{"ports": [{"port": 1}]}]},
            {"egress": [{"ports": [{"port": 1}, {"port": 2}]}]},
        ),
        ({"egress": [{}]}, {"egress": [{}, {}]}),
        ({"podSelector": {}}, {"podSelector": {"matchLabels": {"a": "b"}}}),
        ({"selector": {"a": "b"}}, {"selector": {"a": "b", "c": "d"}}),
        ({"selector": {"matchLabels": {}}}, {"selector": {"matchLabels": {"c": "d"}}}),
    ],
)
def test_forms_that_do_not(wanted: Object, found: Object) -> None:
    assert was_changed(wanted, found)
