"""``embertide logs``: the log of a job on a Kubernetes cluster, also after its pods are gone."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from embertide.cli.options import JsonOption

if TYPE_CHECKING:
    from embertide.submit.logs import PodLog


def logs(
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="The name of the job.", show_default=False)
    ],
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Of the job; else that of the context or the pod.",
            show_default=False,
        ),
    ] = None,
    tail: Annotated[
        int,
        typer.Option("--tail", min=1, max=10_000, metavar="N", help="How many lines of each pod."),
    ] = 40,
    json_output: JsonOption = False,
) -> None:
    """Show the log of a job on a Kubernetes cluster: why it failed, what its pods do.

    The pods of a failed attempt are removed; the last lines of the one that failed first stay in
    the job's status, 40 at most. Logs of running pods are fetched.

    [bold]Examples[/bold]

      embertide logs products
      embertide logs products -n shop --tail 200
    """
    from embertide.launch.signals import interruptible
    from embertide.submit.cluster import Cluster
    from embertide.submit.logs import read_logs

    with interruptible():
        phase, pods = read_logs(Cluster.connect(namespace), job, tail)
        if json_output:
            for log in pods:
                print(json.dumps(dataclasses.asdict(log)))
        elif pods:
            _show(pods)
        if not pods:
            print(f"{job} is {phase}: no pod has a log, and none failed with one", file=sys.stderr)


def _show(pods: list[PodLog]) -> None:
    """Each with its heading, a blank line between two."""
    for number, log in enumerate(pods):
        print("\n" * (number > 0) + log.title)
        for line in log.lines:
            print(line)
