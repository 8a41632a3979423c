"""Objects that somebody changed by hand are applied again; not for the API server's own forms."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from embertide_operator.pods.drift import was_changed
from tests.support.expected import FOLDER, Expected, read
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


FORMS = read(FOLDER / "forms.txt")


@pytest.mark.parametrize("name", FORMS)
def test_forms_that_mean_the_same_and_others(name: str, expected: Expected) -> None:
    """What is wanted, and what the API server has."""
    wanted, found = map(json.loads, name.split(" and "))
    expected.check("forms.txt", name, "changed" if was_changed(wanted, found) else "same", FORMS)
