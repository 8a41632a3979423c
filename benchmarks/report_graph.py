"""The section of docs/performance.md about files to CSR."""

from __future__ import annotations

from typing import Any

from benchmarks.support.rounds import Run, table

WORDS = """## From files to the CSR

`python -m benchmarks.graph`: {edges} M edges over {nodes} M nodes, ends drawn evenly, one column of
features; the stages until the CSR of whole runs, files in the page cache. *Decoding* is pyarrow
alone on the same files, with as many threads: what is left to a reader that uses it is the rest.
*Ratio* is to our first grid, round by round."""


def section(results: Run) -> str:
    """Words and a table: a row for each kind of ids, format and system."""
    rows: list[list[Any]] = [
        [
            f"{case['ids']}, {case['format']}",
            name,
            *(of.get(key) for key in ("features", "ingest", "csr", "graph")),
            of["millions_per_second"],
            of["graph_ratio"],
        ]
        for case in results["cases"]
        for name, of in case["systems"].items()
    ]
    head = ["ids", "system", "features s", "ingest s", "csr s", "all s", "M edges/s", "ratio"]
    words = WORDS.format(edges=results["edges"] / 1e6, nodes=results["nodes"] / 1e6)
    return "\n\n".join([words, table(head, rows)])
