"""``embertide submit``: the job of a schedule, created on a Kubernetes cluster."""

from __future__ import annotations

import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from embertide.cli.options import JsonOption

if TYPE_CHECKING:
    from embertide.spec.manifest import EmbeddingJob
    from embertide.submit.firing import Firing


class PolicyName(StrEnum):
    """The policies of CronJobs, which `embertide.submit.policy` applies."""

    ALLOW = "Allow"
    FORBID = "Forbid"
    REPLACE = "Replace"


def submit(
    job_path: Annotated[
        Path,
        typer.Argument(
            metavar="JOB.yaml",
            help="The EmbeddingJob, with placeholders; its name is the schedule's.",
            show_default=False,
        ),
    ],
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="The time that the job is for, such as 2026-11-22T03Z, or now. By default, in the "
            "pod of a CronJob, the time that this was scheduled for.",
            show_default=False,
        ),
    ] = None,
    time_zone: Annotated[
        str,
        typer.Option("--time-zone", metavar="ZONE", help="Of placeholders and of --at."),
    ] = "UTC",
    policy: Annotated[
        PolicyName,
        typer.Option(
            "--policy",
            help="While an earlier job of the schedule is unfinished: Allow both, Forbid this "
            "one (exit code 0), or Replace that one.",
        ),
    ] = PolicyName.ALLOW,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Of the job; else the manifest's, else that of the context or the pod.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the job, create nothing.")
    ] = False,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Follow the job: 0 when it is published, 10 when it failed."),
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Create an EmbeddingJob on a Kubernetes cluster, once for each scheduled minute.

    {date} and {datetime} are filled in; {date-1d} is the day before ({datetime-6h}, {date-1w},
    {date-1mo}), and {date:%Y/%m/%d} says how to write it. The minute becomes part of the name,
    so that a firing that comes twice creates one job. Placeholders are allowed everywhere but
    in the name and in spec.workers; {{ stands for a brace.

    [bold]Examples[/bold]

      embertide submit job.yaml --at now --dry-run
      embertide submit job.yaml --at 2026-11-22T03:00 --wait
      embertide submit job.yaml --time-zone Europe/Berlin
    """
    from embertide.launch.signals import interruptible

    with interruptible():
        firing = _firing(at, time_zone)
        job = _job(job_path, firing)
        if dry_run:
            _show(job, namespace, json_output)
        else:
            _submit(job, firing, policy, namespace, wait, json_output)


def _firing(at: str | None, time_zone: str) -> Firing:
    """The minute that was asked for, or that this pod's Kubernetes Job was scheduled for."""
    from embertide.submit.firing import Firing, own_job, parse_time, parse_zone, time_of_job

    try:
        zone = parse_zone(time_zone)
        time = None if at is None else parse_time(at, zone)
        name = own_job(os.environ) if time is None else ""
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if time is None:
        from embertide.submit.cluster import Cluster

        time = time_of_job(Cluster.connect(None).kubernetes_job(name))
    return Firing.at(time, zone, automatic=bool(name))


def _job(path: Path, firing: Firing) -> EmbeddingJob:
    from embertide.submit.template import job_of

    return job_of(path, firing)


def _show(job: EmbeddingJob, namespace: str | None, json_output: bool) -> None:
    """Print what would be created, for `kubectl create -f -` too."""
    from embertide.submit.template import to_object

    found = to_object(job, namespace or job.metadata.namespace)
    if json_output:
        print(json.dumps(found))
        return

    import yaml

    print(yaml.safe_dump(found, sort_keys=False, allow_unicode=True), end="")


def _submit(
    job: EmbeddingJob,
    firing: Firing,
    policy: PolicyName,
    namespace: str | None,
    wait: bool,
    json_output: bool,
) -> None:
    from embertide.submit.cluster import Cluster
    from embertide.submit.create import create
    from embertide.submit.policy import Policy
    from embertide.submit.wait import wait_for

    cluster = Cluster.connect(namespace or job.metadata.namespace)
    outcome = create(cluster, job, firing, Policy(policy.value))
    print(json.dumps(outcome.to_json()) if json_output else outcome.message, flush=True)
    if not wait or outcome.event == "skipped":
        return
    log = sys.stderr if json_output else sys.stdout
    status = wait_for(cluster, outcome.name, lambda line: print(line, file=log, flush=True))
    if json_output:
        print(json.dumps({"event": "published", "name": outcome.name, **status["output"]}))
