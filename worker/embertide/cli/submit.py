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
    from collections.abc import Sequence
    from zoneinfo import ZoneInfo

    from embertide.spec.manifest import EmbeddingJob
    from embertide.submit.create import Outcome
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
    first: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Back-fill: the first of several times, oldest first, each followed to its end.",
            show_default=False,
        ),
    ] = None,
    last: Annotated[
        str | None,
        typer.Option("--to", metavar="TIME", help="The last of them.", show_default=False),
    ] = None,
    every: Annotated[
        str, typer.Option("--every", metavar="STEP", help="Between two of them: 1d, 6h, 1w, 1mo.")
    ] = "1d",
    parallel: Annotated[
        int,
        typer.Option(
            "--parallel",
            min=1,
            max=100,
            metavar="N",
            help="How many of them are unfinished at once.",
        ),
    ] = 1,
    time_zone: Annotated[
        str,
        typer.Option("--time-zone", metavar="ZONE", help="Of placeholders, --at, --from and --to."),
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
    {date-1mo}), and {date:%Y/%m/%d} sets how it is written. The minute becomes part of the name,
    so that a firing that comes twice creates one job. Placeholders are allowed everywhere but
    in the name and in spec.workers; {{ stands for a brace.

    [bold]Examples[/bold]

      embertide submit job.yaml --at now --dry-run
      embertide submit job.yaml --at 2026-11-22T03:00 --wait
      embertide submit j.yaml --from 2026-11-01 --to 2026-11-05
      embertide submit job.yaml --time-zone Europe/Berlin
    """
    from embertide.launch.signals import interruptible

    with interruptible():
        if first is not None or last is not None:
            firings = _range(at, first, last, every, time_zone)
        else:
            firings = [_firing(at, time_zone, policy)]
        # All are checked before any is created.
        jobs = [(_job(job_path, firing), firing) for firing in firings]
        if dry_run:
            _show([job for job, _ in jobs], namespace, json_output)
        elif first is not None:
            _submit_all(jobs, parallel, namespace, json_output)
        else:
            _submit(*jobs[0], policy, namespace, wait, json_output)


def _range(
    at: str | None, first: str | None, last: str | None, every: str, time_zone: str
) -> list[Firing]:
    """The minutes of a back-fill."""
    from embertide.submit.backfill import firings_of, range_of
    from embertide.submit.firing import parse_time, parse_zone

    if at is not None or first is None or last is None:
        raise typer.BadParameter("give --at, or --from and --to")
    try:
        zone = parse_zone(time_zone)
        ends = [
            parse_time(text, zone, option).astimezone(zone)
            for text, option in ((first, "--from"), (last, "--to"))
        ]
        return firings_of(range_of(ends[0], ends[1], last, every), zone)
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(str(error)) from None


def _firing(at: str | None, time_zone: str, policy: PolicyName) -> Firing:
    """The minute that was asked for, or that this pod's Kubernetes Job was scheduled for."""
    from embertide.submit.firing import Firing, own_job, parse_zone

    try:
        if at is None:
            return _firing_of_job(own_job(os.environ), parse_zone(time_zone))
        asked = at != "now" and policy is PolicyName.ALLOW
        return Firing.of_text(at, time_zone, backfill=asked)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _firing_of_job(name: str, zone: ZoneInfo) -> Firing:
    """The minute that a Kubernetes Job stands for; raises ValueError for a wrong annotation."""
    from embertide.submit.cluster import Cluster
    from embertide.submit.firing import Firing, asked_time, time_of_job

    job = Cluster.connect(None).kubernetes_job(name)
    asked = asked_time(job, zone)
    time = time_of_job(job) if asked is None else asked
    return Firing.at(time, zone, automatic=True, backfill=asked is not None)


def _job(path: Path, firing: Firing) -> EmbeddingJob:
    from embertide.submit.template import job_of

    return job_of(path, firing)


def _show(jobs: Sequence[EmbeddingJob], namespace: str | None, json_output: bool) -> None:
    """Print what would be created, for `kubectl create -f -` too."""
    from embertide.submit.template import to_object

    objects = [to_object(job, namespace or job.metadata.namespace) for job in jobs]
    if json_output:
        for item in objects:
            print(json.dumps(item))
        return

    import yaml

    print(yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True), end="")


def _submit_all(
    jobs: Sequence[tuple[EmbeddingJob, Firing]],
    parallel: int,
    namespace: str | None,
    json_output: bool,
) -> None:
    """Create the jobs of a back-fill, oldest first, and follow them."""
    from embertide.submit.backfill import Backfill
    from embertide.submit.cluster import Cluster

    log = sys.stderr if json_output else sys.stdout

    def note(outcome: Outcome) -> None:
        print(json.dumps(outcome.to_json()) if json_output else outcome.message, flush=True)

    cluster = Cluster.connect(namespace or jobs[0][0].metadata.namespace)
    Backfill(cluster, parallel, lambda line: print(line, file=log, flush=True), note).run(jobs)


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
