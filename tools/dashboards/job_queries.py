"""What the queries of a job's dashboard have in common.

A worker's series end with its pod, so numbers that are not over time are the last ones in the
chosen range (``last_over_time``). An attempt of seconds may be over between two points of a graph,
and each of its workers may be scraped once, at a moment of its own: graphs look back over the
distance of their points, and totals of an attempt that published come from the job's status.
"""

from __future__ import annotations

JOB = 'job_namespace="$namespace", job_name="$job"'
RUN = f'{JOB}, attempt="$attempt"'
RANKS = "graph_rank, feature_rank"

_WORKER = "job_namespace, job_name, attempt, rank"
_LONG_SECONDS = 300
"""Of a stage, after which scrapes that are 15 s apart show workers within 5% of each other."""


def last(metric: str, labels: str = RUN) -> str:
    """The last totals of workers in the chosen range."""
    return f"last_over_time({metric}{{{labels}}}[$__range])"


def over_time(metric: str, labels: str = RUN) -> str:
    """A gauge of workers for a graph, also where it came and went between two points."""
    chosen = f"{metric}{{{labels}}}"
    return f"({chosen} or last_over_time({chosen}[$__interval]))"


def rate(metric: str, labels: str = RUN) -> str:
    """The rate of a counter of workers; of one scraped once, its average since it began."""
    chosen = f"{metric}{{{labels}}}"
    stages = f"embertide_stage_seconds_total{{{RUN}}}[$__rate_interval]"
    seconds = f"sum by ({_WORKER}) (last_over_time({stages})) > 0"
    average = (
        f"last_over_time({chosen}[$__rate_interval]) / on ({_WORKER}) group_left () ({seconds})"
    )
    return f"(rate({chosen}[$__rate_interval]) or {average})"


def run_total(metric: str) -> str:
    """A total in the job's status, where the chosen attempt is the one that published."""
    return f"embertide_last_run_{metric}{{{RUN}}}"


def once_long(expression: str) -> str:
    """Live totals, once all workers have spent five minutes in ``infer``.

    Before that, workers would be compared at different moments of their work.
    """
    return f"({expression} and on () ({_is_long()}))"


def published_soon() -> str:
    """A series where the attempt published before live totals could be compared."""
    return f"{run_total('info')} unless on () ({_is_long()})"


def _is_long() -> str:
    stage = f'{RUN}, stage="infer"'
    return f"min({last('embertide_stage_seconds_total', stage)}) >= {_LONG_SECONDS}"
