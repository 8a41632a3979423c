"""A volume that is missing is told like an image that is."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from embertide_operator.failures import why_not_running
from embertide_operator.mounts import tell_mount_error
from tests.support.operator_world import World

CREATING = {"state": {"waiting": {"reason": "ContainerCreating"}}}
OLD = {"lastTimestamp": "2026-11-21T12:00:00Z", "message": "timed out"}
NEW = {
    "lastTimestamp": "2026-11-21T12:00:02Z",
    "message": 'MountVolume.SetUp failed for volume "credentials" : secret "s3" not found',
}


def pods(*states: dict[str, Any]) -> list[dict[str, Any]]:
    world = World()
    world.reconcile()
    return world.pods(*states)


def test_the_newest_event_of_the_first_pod_is_its_reason() -> None:
    found = pods({"state": {"running": {}}}, CREATING, CREATING)
    before, asked = copy.deepcopy(found), list[str]()

    def events_about(uid: str) -> list[dict[str, Any]]:
        asked.append(uid)
        return [NEW, OLD]

    told = tell_mount_error(found, events_about)
    assert why_not_running(told[1]) == ("FailedMount", f"worker 1 cannot start: {NEW['message']}")
    assert asked == ["pod-1"], "one question, however many pods there are"
    assert (told[0], told[2], found) == (before[0], before[2], before), (
        "nothing is changed in place"
    )


@pytest.mark.parametrize(
    "state",
    [
        {"state": {"running": {}}},
        {"state": {"waiting": {"reason": "ImagePullBackOff"}}},
        {"state": {"terminated": {"exitCode": 1}}},
    ],
)
def test_pods_in_other_states_are_asked_nothing(state: dict[str, Any]) -> None:
    found = pods(state)
    assert tell_mount_error(found, lambda _: [NEW]) == found


def test_a_pod_whose_volumes_are_mounted_pulls_its_image() -> None:
    found = pods(CREATING)
    found[0]["status"]["conditions"].append({"type": "PodReadyToStartContainers", "status": "True"})
    assert tell_mount_error(found, lambda _: [NEW]) == found


def test_a_pod_without_such_an_event_is_only_being_created() -> None:
    found = pods(CREATING)
    assert tell_mount_error(found, lambda _: []) == found
    assert why_not_running(found[0]) is None
