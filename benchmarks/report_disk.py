"""The sections of docs/performance.md about graphs that are larger than a worker's memory."""

from __future__ import annotations

from typing import Any

from benchmarks.support.rounds import Run, table

OUT_OF_CORE = """## Larger than memory

`python -m benchmarks.out_of_core`: whole runs of one worker, npy features in and npy out,
without the self-check. *On disk* is `--memory` in a memory group of that size and the processes
beside a worker, page cache included; *memmaps* is layer by layer over numpy's memmaps, as DGI
does it, with batches whose sources fill half of that memory, in the same group, which it enters
once its graph is built. *Peak* is the worker's memory beyond its imports, *bound* how long the
disk takes for as many bytes in sequence."""

LARGE = """## A billion edges

`python -m benchmarks.large`: one run of GCN with three layers, from parquet to parquet, on one
worker with tensors, edges and graph on disk, in a memory group, page cache included. It is
computed once, not a median. *Error* is the largest of the rows that the run has computed a
second time, in float64, as a share of their magnitude. *Edges a core* is edges times layers for
each second of the layers and core. *Dollars* is the whole command at 0.1512 an hour, an
assumed price of two cores, 16 GiB and a local NVMe disk; `--price` takes yours."""


def out_of_core(results: Run) -> str:
    """Words and a table: a row for each case and system."""
    rows: list[list[Any]] = [
        [
            f"{case['conv'].upper()}, scale {case['scale']}, {case['memory'] / 2**30:.3g} GiB",
            name,
            *(of[key] for key in ("wall", "wall_ratio", "work", "infer", "cpu")),
            *(_mib(of, key) for key in ("peak", "planned", "group", "wrote", "read")),
            of.get("bound"),
            f"{of['max_error']:.1e}",
        ]
        for case in results["cases"]
        for name, of in case["systems"].items()
    ]
    head = ["case", "system", "wall s", "wall ratio", "work s", "infer s", "CPU s", "peak MiB"]
    head += ["planned MiB", "group MiB", "written MiB", "read MiB", "bound s", "largest difference"]
    return "\n\n".join([OUT_OF_CORE, table(head, rows)])


def large(results: Run) -> str:
    """Words, and the run's figures one below the other."""
    stages = ", ".join(f"{name} {seconds:.3g}" for name, seconds in results["stages"].items())
    rows: list[list[Any]] = [
        ["nodes", f"{results['nodes']:,}"],
        ["edges", f"{results['edges']:,}"],
        ["columns of features, layers and result", results["width"]],
        ["memory of the worker, with its imports", f"{results['memory'] / 2**30:.3g} GiB"],
        ["the whole command", f"{results['wall']:,.0f} s"],
        ["its stages, in seconds", stages],
        ["processor", f"{results['cpu']:,.0f} s"],
        [
            "edges of the graph a second, the whole command",
            f"{results['edges'] / results['wall']:,.0f}",
        ],
        ["edges a core", f"{results['edges_a_core']:,.0f} /s"],
        ["dollars", f"{results['dollars']:.3f}"],
        ["error", f"{results['error']:.1e}"],
        ["peak beyond the imports, and planned", _of_plan(results)],
        ["most that the group held", f"{_mib(results, 'group'):,.0f} MiB"],
        [
            "written to the disk, and read",
            f"{_gib(results, 'wrote')} and {_gib(results, 'read')} GiB",
        ],
        ["cores that others kept busy", results["others"]],
    ]
    return "\n\n".join([LARGE, table(["", ""], rows)])


def _of_plan(results: Run) -> str:
    return f"{_mib(results, 'peak'):,.0f} of {_mib(results, 'planned'):,.0f} MiB"


def _mib(of: Run, key: str) -> float | None:
    return of[key] / 2**20 if of.get(key) else None


def _gib(of: Run, key: str) -> str:
    return f"{of[key] / 2**30:.0f}"
