"""Init containers and sidecars of a job's pod template: their failures are reported by name."""

from __future__ import annotations

from typing import Any

import pytest

from embertide_operator.job.sidecars import other_trouble

PULL = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "proxy:2"'}}
FAILED = {"terminated": {"exitCode": 3, "reason": "Error", "message": "no route to vault\n"}}
KILLED = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
AGAIN = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed"}}
DONE = {"terminated": {"exitCode": 0, "reason": "Completed"}}
RUNNING: dict[str, Any] = {"running": {}}
CREATING = {"waiting": {"reason": "PodInitializing"}}


def pod(
    *,
    first: tuple[dict[str, Any], ...] = (),
    beside: dict[str, Any] | None = None,
    native: bool = False,
    last: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A pod whose init containers are in these states, and perhaps one beside the worker."""
    names = [f"init-{index}" for index in range(len(first))]
    policy = {"restartPolicy": "Always"} if native else {}
    states = [
        {"name": name, "state": state, "lastState": last or {}}
        for name, state in zip(names, first, strict=True)
    ]
    status: dict[str, Any] = {"containerStatuses": [{"name": "worker", "state": CREATING}]}
    if states:
        status["initContainerStatuses"] = states
    if beside is not None:
        status["containerStatuses"].append(
            {"name": "proxy", "state": beside, "lastState": last or {}}
        )
    return {"spec": {"initContainers": [{"name": n, **policy} for n in names]}, "status": status}


@pytest.mark.parametrize(
    ("found", "reason", "message"),
    [
        (
            pod(first=(DONE, FAILED)),
            "Error",
            "init container 'init-1' exited with code 3: no route to vault",
        ),
        (
            pod(first=(AGAIN,), last=FAILED),
            "CrashLoopBackOff",
            "init container 'init-0' exited with code 3: no route to vault",
        ),
        (
            pod(first=(PULL,), native=True),
            "ImagePullBackOff",
            "sidecar 'init-0' cannot start: Back-off pulling image \"proxy:2\"",
        ),
        (
            pod(beside=AGAIN, last=KILLED),
            "CrashLoopBackOff",
            "sidecar 'proxy' exceeded its memory limit and was killed",
        ),
        (
            pod(beside={"terminated": {"exitCode": 143}}),
            "Error",
            "sidecar 'proxy' was killed by signal 15",
        ),
        (
            pod(beside=AGAIN, last=DONE),
            "CrashLoopBackOff",
            "sidecar 'proxy' exits with code 0 and is restarted, again and again;"
            " it has to keep running",
        ),
        (
            pod(
                beside={"terminated": {"exitCode": 128, "reason": "StartError", "message": "no x"}}
            ),
            "StartError",
            "sidecar 'proxy' cannot start: no x",
        ),
    ],
)
def test_a_failure_is_told_by_the_containers_name(
    found: dict[str, Any], reason: str, message: str
) -> None:
    assert other_trouble(found) == (reason, message)


@pytest.mark.parametrize(
    "found",
    [
        pod(),
        pod(first=(DONE, RUNNING)),
        pod(first=(CREATING,)),
        pod(first=(RUNNING,), native=True, beside=RUNNING),
        {"metadata": {}},
    ],
)
def test_what_starts_and_runs_is_no_trouble(found: dict[str, Any]) -> None:
    assert other_trouble(found) is None
