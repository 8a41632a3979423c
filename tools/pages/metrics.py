"""docs/metrics.md: what the metrics show, and every one as the table of names has it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from embertide.spec.metric_names import (
    JOB_LABELS,
    OPERATOR_METRICS,
    OUTPUT_LABELS,
    RUN_LABELS,
    SCHEDULE_LABELS,
    WORKER_LABELS,
    WORKER_METRICS,
    Metric,
)

INTRODUCTION = """\
# Metrics

Every worker and the operator serve `/metrics` on port 8080. All names, labels, units and help texts
are in one module, `worker/embertide/spec/metric_names.py`; this page is generated from it by
`python -m tools.pages`.

Labels never carry group numbers, peers or node ids. What a worker keeps and serves grows with the
number of axes, primitives, layers and relations alone: a group is counted when it arrives.

## Communication groups

The P x M workers form two families of groups: the group (p, .) of the M workers that share graph
partition p and talk along the feature axis, and the group (., m) of the P workers that share
feature slice m and talk along the graph axis. Every series of a worker has its coordinates, so a
group is one label's value:

```
# Bytes that each group (., m) moved along the graph axis, by layer.
sum by (feature_rank, layer) (embertide_exchange_sent_bytes_total{axis="graph"})
# The worker that waits longest, over the mean of its job.
max by (job_name) (sum by (job_name, attempt, rank) (embertide_exchange_wait_seconds_sum))
  / avg by (job_name) (sum by (job_name, attempt, rank) (embertide_exchange_wait_seconds_sum))
# Sent beside planned; what no plan foresees has no second side.
sum by (axis, primitive) (embertide_exchange_sent_bytes_total)
  / sum by (axis, primitive) (embertide_exchange_planned_sent_bytes)
```

`axis` is `graph`, `feature` or `world` (all workers); `layer` counts from 1 and is empty outside
the layers; what becomes the output's rows counts to the last layer. `relation` is one of at most
35 values: "" for what belongs to none and in a graph that has one, 32 names such as
`user:buys:item`, `other` for all further ones, and `several` for rows that travel once for more
than one relation. The size of a group is what was received over the number of groups.

The label `attempt` distinguishes attempts: each starts its counters at 0. What a job took over is
`embertide_resumed_layer` (a layer that an earlier attempt had kept), `embertide_job_confirmed` (all
of a version), `embertide_last_run_refreshed_rows` (all rows but these) and
`embertide_last_run_resumed_layer`. S3 is counted in the worker process; the planner's and rank 0's
listing of the inputs is not.

## After a run

Workers end seconds after the version is published, and their series with them. So that no scrape
can come too late, rank 0 sends the run's totals with its last `/status`; the operator keeps them in
`status.report` and serves them as `embertide_last_run_*` as long as the job exists. They have one
entry for each axis and primitive and one for each stage.

`embertide_push_*` are of the push of a complete job into the index of its `spec.push`
([indexes.md](indexes.md#on-kubernetes)), and come from `status.push` in the same way.

## Freshness of outputs

`spec.freshness: {maxAge: 26h}` is the objective of a job's output. The condition `Fresh` says
whether the output's newest version is younger, whichever job published it. The operator keeps it
current after the job is complete, too: it changes within a second of the time when the version
becomes too old, and within `resyncSeconds` of another job's success.

`embertide_output_*` are times, not ages, so that an alert goes on counting while the operator is
away:

```
time() - embertide_output_last_success_timestamp_seconds
  > embertide_output_freshness_objective_seconds
# Never published, for longer than the objective.
time() - embertide_output_first_job_timestamp_seconds
  > embertide_output_freshness_objective_seconds
  unless embertide_output_last_success_timestamp_seconds
```

They survive the deletion of a job by its time to live and a restart of the operator, which keeps a
record of each output in one ConfigMap in its namespace, `<release>-outputs`.

Its series go when an output is abandoned: when it has no job any more, and for 14 days
(`outputRetentionSeconds`), or three times its objective where that is longer, none was
created or has finished. To forget one at once, delete its jobs, remove its key from the ConfigMap
(`kubectl edit`) and restart the operator.
"""


def page() -> str:
    """The whole page."""
    sections = (
        ("Workers", WORKER_LABELS, WORKER_METRICS),
        ("Jobs", JOB_LABELS, _named("job_")),
        ("Last runs", RUN_LABELS, _named("last_run_")),
        ("Pushes into indexes", JOB_LABELS, _named("push_")),
        ("Outputs", OUTPUT_LABELS, _named("output_")),
        ("Schedules", SCHEDULE_LABELS, _named("schedule_")),
        ("The operator", (), [*_named("operator_"), *_named("jobs")]),
    )
    parts = [INTRODUCTION]
    for title, common, metrics in sections:
        parts.append("\n".join(_section(title, common, metrics)))
    return "\n\n".join(parts).replace("\n\n\n", "\n\n") + "\n"


def _named(prefix: str) -> list[Metric]:
    return [metric for metric in OPERATOR_METRICS if metric.name.startswith(f"embertide_{prefix}")]


def _section(title: str, common: tuple[str, ...], metrics: Iterable[Metric]) -> Iterator[str]:
    """A table; kinds have a column where there are several."""
    metrics = list(metrics)
    kinds = sorted({metric.kind for metric in metrics})
    labels = f"All have the labels {_code(common)}." if common else ""
    alike = f"All are {kinds[0]}s." if len(kinds) == 1 else ""
    yield f"## {title}\n"
    if labels or alike:
        yield f"{labels} {alike}".strip() + "\n"
    yield "| metric, its own labels |" + " kind |" * (not alike) + " |"
    yield "|---|" + "---|" * (not alike) + "---|"
    for metric in metrics:
        own = ", ".join(label for label in metric.labels if label not in common)
        name = f"`{metric.name}{{{own}}}`" if own else f"`{metric.name}`"
        yield f"| {name} |" + f" {metric.kind} |" * (not alike) + f" {metric.help} |"


def _code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)
