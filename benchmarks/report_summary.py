"""The first ten lines of docs/performance.md: the numbers that matter, and the machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.report_words import SYSTEMS
from benchmarks.support.rounds import Run, figure

_OURS = "ours"


def summary(results: dict[str, Run]) -> str:
    """A line for each kind of result that there is; "" without any.

    Args:
        results: name of a result -> what its command measured.
    """
    machines = Counter(machine_of(found) for found in results.values())
    usual = machines.most_common(1)[0][0] if machines else ""
    lines = []
    for name, lines_of in _LINES.items():
        if name in results:
            where = machine_of(results[name])
            place = "" if where == usual else f" (on {where})"
            lines += [f"- {line}{place}" for line in lines_of(results[name])]
    if not lines:
        return ""
    head = (
        f"**In short**, on {usual}, where not stated otherwise; all are medians, and the tables"
        " have the number of runs:"
    )
    return "\n".join([head, "", *lines])


def machine_of(results: Run) -> str:
    """Processor, cores and memory that a result was measured with."""
    where = results["where"]
    memory = where["memory_bytes"] / 2**30
    return f"{where['processor']}, {where['cores']} cores, {memory:.0f} GiB"


def _whole_runs(results: Run) -> Iterator[str]:
    """The largest case of each convolution: our best grid beside the fastest other system."""
    largest = {case["conv"]: case for case in sorted(results["cases"], key=_scale)}
    for conv, case in largest.items():
        systems: dict[str, Run] = case["systems"]
        ours = min((key for key in systems if key.startswith(_OURS)), key=_by(systems, "work"))
        peers = [key for key in systems if not key.startswith(_OURS)]
        peer = min(peers, key=_by(systems, "wall"))
        yield (
            f"**{conv.upper()}**, {figure(case['nodes'] / 1e6)} M nodes, "
            f"{figure(case['edges'] / 1e6)} M edges, the whole command: "
            f"{_seconds_and_memory(systems[ours])} ({ours.removeprefix(_OURS).strip()}); "
            f"{SYSTEMS.get(peer, peer)}, the fastest other system, "
            f"{_seconds_and_memory(systems[peer])}"
        )


def _scale(case: Run) -> int:
    return int(case["scale"])


def _by(systems: dict[str, Run], key: str) -> Callable[[str], Any]:
    return lambda name: systems[name][key]


def _seconds_and_memory(run: Run) -> str:
    return f"{figure(run['wall'])} s and {figure(run['peak_bytes'] / 2**30)} GiB"


def _scaling(results: Run) -> Iterator[str]:
    """Strong scaling: what a worker of the largest grid takes of what one alone takes."""
    strong = [case for case in results["cases"] if case["kind"] == "strong"]
    for case in strong[:1]:
        (first, alone), *_, (grid, many) = case["grids"].items()
        cpu, memory = (many[key] / alone[key] for key in ("critical_cpu", "peak_bytes"))
        yield (
            f"**Scaling**, {case['conv'].upper()}, the same graph on {grid} workers of this "
            f"machine: the busiest takes {cpu:.0%} of the CPU time and {memory:.0%} of the memory "
            f"of {first}"
        )


def _graph(results: Run) -> Iterator[str]:
    """Edges a second from files to the CSR, by kind of ids, with one worker."""
    rates = {
        case["ids"]: case["systems"]["ours 1x1"]["millions_per_second"] for case in results["cases"]
    }
    kinds = ", ".join(f"{figure(rate)} M with {ids} ids" for ids, rate in rates.items())
    yield f"**From files to the CSR**, edges a second of one worker: {kinds}"


def _store(results: Run) -> Iterator[str]:
    """Transfers from and to a store, beside plain ones, at the lowest rate."""
    case = results["cases"][0]
    ours = next(of for name, of in case["systems"].items() if name.startswith(_OURS))
    yield (
        f"**From and to a store** at {figure(case['gigabits'])} Gbit/s: reading and publishing "
        f"take {figure(ours['transfers_ratio'])} times as long as plain transfers of the same "
        "objects"
    )


def _large(results: Run) -> Iterator[str]:
    """Its sizes, memory, time and price."""
    yield (
        f"**{results['edges'] / 1e9:.2f} billion edges**, {figure(results['nodes'] / 1e6)} M "
        f"nodes, GCN with three layers in {figure(results['memory'] / 2**30)} GiB: "
        f"{results['wall'] / 60:.0f} minutes, {figure(results['dollars'])} dollars"
    )


def _kernels(results: Run) -> Iterator[str]:
    """Sums and attention beside DGL."""
    kernels = results["kernels"]
    beside = [
        f"{words} goes over {figure(kernels[name]['millions_per_second'])} M edges/s, in"
        f" {figure(kernels[name]['rivals']['dgl']['ratio'])} times DGL's time"
        for name, words in (("spmm_sum", "a sum over neighbours"), ("gat", "GAT's attention"))
        if "dgl" in kernels[name]["rivals"]
    ]
    if beside:
        yield f"**Kernels**: {'; '.join(beside)}"


def _operator(results: Run) -> Iterator[str]:
    """Latency, and cost at the most running jobs."""
    measured = next(iter(results["operators"].values()))
    running, cost = list(measured["running"].items())[-1]
    latency = measured["apply_to_statefulset"]["median_seconds"]
    yield (
        f"**The operator** with {measured['jobs']} jobs: {figure(latency)} s from a job to its "
        f"StatefulSet; {cost['rss_bytes'] / 2**20:.0f} MiB and {figure(cost['cores'])} cores while "
        f"{running} run"
    )


_LINES: dict[str, Callable[[Run], Iterator[str]]] = {
    "end_to_end": _whole_runs,
    "typed": _whole_runs,
    "scaling": _scaling,
    "graph": _graph,
    "store": _store,
    "large": _large,
    "kernels": _kernels,
    "operator": _operator,
}
