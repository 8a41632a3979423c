"""The operator's section of docs/performance.md."""

from __future__ import annotations

from typing import Any

from benchmarks.support.rounds import Run, table

WORDS = """## The operator

`python -m benchmarks.operator`: {jobs} EmbeddingJobs, of which some run while the others have
finished; pods are held by no node, their status and `/status` are served by the benchmark. *Apply
to StatefulSet* is from creating a job until a watch reports its StatefulSet, with {running}
running. A pass is one reconciliation of a job."""

_MIB = 2**20


def section(results: Run) -> str:
    """Words and two tables: latencies, and cost by the number of running jobs."""
    operators: dict[str, Run] = results["operators"]
    first = next(iter(operators.values()))
    rows: list[list[Any]] = [
        [name, of["apply_to_statefulset"]["median_seconds"],
         of["apply_to_statefulset"]["p99_seconds"], of["apply_to_statefulset"]["count"]]
        for name, of in operators.items()
    ]  # fmt: skip
    latencies = table(["operator", "apply to StatefulSet, median s", "p99 s", "jobs timed"], rows)
    rows = [
        [name, running, round(at["rss_bytes"] / _MIB), at["cores"], at["requests_per_second"],
         at["passes_per_second"], at["pass_seconds"]]
        for name, of in operators.items()
        for running, at in of["running"].items()
    ]  # fmt: skip
    head = ["operator", "jobs running", "resident MiB", "cores", "API requests/s", "passes/s",
            "mean pass s"]  # fmt: skip
    words = WORDS.format(jobs=first["jobs"], running=first["latency_at"])
    return "\n\n".join([words, latencies, table(head, rows)])
