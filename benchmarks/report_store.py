"""The section of docs/performance.md about runs from a store and to it."""

from __future__ import annotations

from typing import Any

from benchmarks.support.rounds import Run, figure, table

WORDS = """## From a store and to it

`python -m benchmarks.store`: whole runs of {conv}, scale {scale}, npy features in and npy out, from
and to an S3 server in a separate network namespace, over a link of the rate in both
directions. *Read* is the stages that read features and edges, *write* is publishing, *moved* their
sum. *Plain* fetches the same objects into memory by eight requests at a time, and writes as many
bytes with their SHA-256: it decodes nothing, checks nothing, and does not read back what it wrote,
which ours does before it publishes. *Ratio* is to plain, round by round. Server, link and commands
share the cores, so that at more than 1 Gbit/s they are what takes the time, too."""


def section(results: Run) -> str:
    """Words and a table: a row for each rate and system."""
    rows: list[list[Any]] = [
        [
            f"{figure(case['gigabits'])} Gbit/s" if case["gigabits"] else "loopback",
            name,
            *(of[key] for key in ("read", "write", "transfers", "transfers_ratio")),
            of["read_bytes"] / 2**20,
            of["written_bytes"] / 2**20,
            of["wall"],
        ]
        for case in results["cases"]
        for name, of in case["systems"].items()
    ]
    head = ["link", "system", "read s", "write s", "moved s", "ratio", "read MiB", "written MiB"]
    words = WORDS.format(conv=results["conv"].upper(), scale=results["scale"])
    return "\n\n".join([words, table([*head, "wall s"], rows)])
