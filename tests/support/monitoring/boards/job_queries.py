"""What the queries of a job's dashboard have in common.

A worker's series end with its pod, so numbers that are not over time are the last ones in the
chosen range (``last_over_time``).
"""

from __future__ import annotations

JOB = 'job_namespace="$namespace", job_name="$job"'
RUN = f'{JOB}, attempt="$attempt"'
RANKS = "graph_rank, feature_rank"


def last(metric: str, labels: str = RUN) -> str:
    """The last totals of workers in the chosen range."""
    return f"last_over_time({metric}{{{labels}}}[$__range])"


def rate(metric: str, labels: str = RUN) -> str:
    """The rate of a counter of workers."""
    return f"rate({metric}{{{labels}}}[$__rate_interval])"
