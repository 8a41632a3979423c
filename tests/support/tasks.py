"""What ranks do for the tests; light to import, like all that ranks import."""

from __future__ import annotations

import os
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from threading import Barrier, BrokenBarrierError
from typing import Any, Self

import numpy as np
import pyarrow as pa
import torch

from embertide.context import RunContext
from embertide.engine.stages import publish
from embertide.engine.stages.csr import sample_layer
from embertide.engine.stages.publish import ResultRows, write_parts
from embertide.errors import OutputError
from embertide.facts.telemetry.recorder import Label, NullRecorder
from embertide.facts.telemetry.self_check import SelfCheck
from embertide.graph import gemm, idmap, shuffle
from embertide.graph.exchange import Exchange
from embertide.graph.idmap import HashedIds
from embertide.graph.transports.network import Network, Transfer
from embertide.grid import RowRanges, even_bounds
from embertide.io.storage.opening import open_storage
from embertide.io.versions import parts as part_files
from embertide.io.versions.parts import PartDigest
from embertide.kernels import attention_torch, moments
from embertide.program.steps import Program, message, row_wise, semantic
from embertide.spec.workers import StorageSettings
from tests.support.plans import order_steps
from tests.support.world import Graph, Rank, make_features, make_job


def embed_all(
    exchange: Exchange,
    graphs: dict[tuple[str, bool], Graph],
    cases: list[tuple[Program, str, bool]],
    rows: str = "float32",
) -> list[np.ndarray]:
    """Our rows of every case's embeddings, with buffers so small that all are used often."""
    use_small_buffers()
    ranks = _ranks(exchange, graphs, rows)
    return [
        ranks[kind, weighted].embed(
            order_steps(program, exchange.grid.world), make_features(program.input_width)
        )
        for program, kind, weighted in cases
    ]


def check_all(
    exchange: Exchange,
    graphs: dict[tuple[str, bool], Graph],
    cases: list[tuple[Program, str, bool]],
) -> list[SelfCheck]:
    """What computing every row of every case again gives, as :func:`embed_all` computes them."""
    use_small_buffers()
    ranks, answers = _ranks(exchange, graphs, "float32"), []
    for program, kind, weighted in cases:
        ordered = order_steps(program, exchange.grid.world)
        features = make_features(program.input_width)
        checked = ranks[kind, weighted].checked(ordered, features, 1000)[1]
        assert checked is not None
        answers.append(checked)
    return answers


def use_small_buffers() -> None:
    """Buffers so small that all are used often."""
    gemm.ROUND_BYTES, gemm.PANEL_BYTES, attention_torch.PAIR_VALUES = 280, 120, 100
    message.CHUNK_VALUES, row_wise.CHUNK_VALUES = 300, 300
    moments.CHUNK_VALUES = semantic.CHUNK_VALUES = 30


def _ranks(
    exchange: Exchange, graphs: dict[tuple[str, bool], Graph], rows: str
) -> dict[tuple[str, bool], Rank]:
    return {
        key: Rank(exchange, graph, make_job(weighted=key[1], rows=rows))
        for key, graph in graphs.items()
    }


Totals = dict[Label, tuple[int, int]]


def count_traffic(
    exchange: Exchange, graph: Graph, programs: dict[str, Program], rows: str = "float32"
) -> tuple[RowRanges, dict[str, Totals]]:
    """Bytes sent and received per label: of the stages up to the CSR, then of each program.

    As on several hosts, where all of it moves.
    """
    exchange.near = [[] for _ in exchange.near]
    exchange.recorder = recorder = GroupRecorder()

    def totals() -> Totals:
        counted, recorder.totals = recorder.totals, {}
        return counted

    rank = Rank(exchange, graph, make_job(weighted=graph.weight is not None, rows=rows))
    counted = {"setup": totals()}
    for name, program in programs.items():
        rank.embed(program, make_features(program.input_width))
        counted[name] = totals()
    return rank.ranges, counted


def build_in_rounds(exchange: Exchange, graph: Graph, round_edges: int) -> list[list[float]]:
    """Row ends, columns and what edges carry of our sub-range, shuffled in rounds of so many."""
    usual = shuffle.ROUND_EDGES
    shuffle.ROUND_EDGES = round_edges
    try:
        csr = Rank(exchange, graph, make_job(weighted=graph.weight is not None)).sub_range
    finally:
        shuffle.ROUND_EDGES = usual
    carried = [t.flatten().tolist() for t in (csr.weights, csr.features) if t is not None]
    return [csr.indptr.tolist(), csr.cols.tolist(), *carried]


class GroupRecorder(NullRecorder):
    """Bytes sent and received, group by group."""

    def __init__(self) -> None:
        self.totals: Totals = {}

    def sent(self, label: Label, size: int) -> None:
        sent, received = self.totals.get(label, (0, 0))
        self.totals[label] = sent + size, received

    def received(self, label: Label, size: int) -> None:
        sent, received = self.totals.get(label, (0, 0))
        self.totals[label] = sent, received + size


class EventLog(NullRecorder):
    """What happened, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Label]] = []

    def received(self, label: Label, size: int) -> None:
        self.events.append(("posted", label))

    def waited(self, label: Label, seconds: float) -> None:
        self.events.append(("arrived", label))

    def computed(self, label: Label, seconds: float) -> None:
        self.events.append(("computed", label))


def log_events(
    exchange: Exchange, graph: Graph, program: Program, depth: int
) -> list[tuple[str, Label]]:
    """Transfers posted, awaited, and blocks computed, while a program runs on several hosts."""
    exchange.near = [[] for _ in exchange.near]
    rank = Rank(exchange, graph, make_job(depth=depth))
    exchange.recorder = EventLog()
    rank.embed(program, make_features(program.input_width))
    return exchange.recorder.events


def merge_groups(
    exchange: Exchange, graph: Graph, programs: dict[str, Program], most: int
) -> dict[str, tuple[list[np.ndarray], list[Totals], dict[tuple[str, str], int]]]:
    """Each program as on several hosts, with groups travelling alone and then up to ``most``.

    Returns:
        our rows, the bytes per label (a label for each message), and the numbers chosen.
    """
    exchange.near = [[] for _ in exchange.near]
    jobs = [make_job(group_bytes=64, groups_per_message=number) for number in (1, most)]
    ranks, found = [Rank(exchange, graph, job) for job in jobs], {}
    for name, program in programs.items():
        embedded, counted = [], []
        for rank in ranks:
            exchange.recorder = GroupRecorder()
            embedded.append(rank.embed(program, make_features(program.input_width)))
            counted.append(exchange.recorder.totals)
        found[name] = embedded, counted, exchange.merging.chosen
    return found


Call = list[tuple[str, int, int]]
"""What was started at once: "send" or "receive", the peer, and the pair's running number."""


class CallLog(Network):
    """Carries transfers as the network does, and keeps which were started together."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._numbers = Counter[tuple[str, int]]()

    def post(
        self, sends: Sequence[Transfer], receives: Sequence[Transfer]
    ) -> tuple[list[Any], list[Any]]:
        ends = [
            *(("send", peer) for peer, _ in sends),
            *(("receive", peer) for peer, _ in receives),
        ]
        self._numbers.update(ends)
        if ends:
            self.calls.append([(*end, self._numbers[end]) for end in ends])
        return super().post(sends, receives)


def log_calls(
    exchange: Exchange, graph: Graph, programs: dict[str, Program], most: int
) -> list[Call]:
    """What is started together, of all stages and programs, with every message on the network."""
    exchange.near, exchange.links = [[] for _ in exchange.near], {}
    exchange.network = log = CallLog()
    weighted = graph.weight is not None
    job = make_job(weighted=weighted, group_bytes=1024, groups_per_message=most)
    rank = Rank(exchange, graph, job)
    for program in programs.values():
        rank.embed(program, make_features(program.input_width))
    return log.calls


def deliver_parts(
    exchange: Exchange, uris: list[str], counts: Sequence[int] = (3, 3), part_rows: int = 3
) -> tuple[str, list[PartDigest]]:
    """What `write_parts` raised, by its class's name and text, or every part.

    Args:
        uris: of the version, by rank.
        counts: rows of each rank, of numbers that ascend over all of them; a node's number is its
            id too.
        part_rows: rows of a part.
    """
    part_files.PART_BYTES = part_rows * 2 * 4
    ctx = RunContext(make_job(), exchange, open_storage(None), lambda _event: None, threads=2)
    try:
        node, rank = ctx.job.spec.input.nodes[0], exchange.grid.rank
        ids = np.arange(sum(counts[:rank]), sum(counts[: rank + 1]))
        values = torch.from_numpy(ids).float().unsqueeze(1).expand(-1, 2).contiguous()
        (parts,) = write_parts(ctx, uris[rank], [ResultRows(node, "", ids, values)])
    except Exception as error:
        return f"{type(error).__name__}: {error}", []
    return "", parts


def write_at_once(exchange: Exchange, uri: str, threads: int) -> bool:
    """Whether two parts of our rows are under way at the same time."""
    met = Barrier(2)

    class Meeting(part_files.PartWriter):
        """A part that waits for another one before it is written."""

        def __enter__(self) -> Self:
            with suppress(BrokenBarrierError):
                # One thread alone would wait in vain.
                met.wait(60.0 if threads > 1 else 0.2)
            return super().__enter__()

    assert len(_write_parts_of(exchange, uri, 2, Meeting, threads=threads)) == 2
    return not met.broken


def _write_parts_of(
    exchange: Exchange, uri: str, parts: int, writer: type[part_files.PartWriter], **more: Any
) -> list[PartDigest]:
    """Parts of three rows each, of ones, by a kind of writer."""
    part_files.PART_BYTES, publish.PartWriter = 3 * 2 * 4, writer
    storage = more.pop("storage", None) or open_storage(None)
    ctx = RunContext(make_job(), exchange, storage, lambda _event: None, **more)
    ids = np.arange(3 * parts)
    rows = ResultRows(ctx.job.spec.input.nodes[0], "", ids, torch.ones(3 * parts, 2))
    return publish.write_rows(ctx, uri, rows)


def read_back_beside(
    exchange: Exchange, uri: str, settings: StorageSettings, environment: dict[str, str]
) -> bool:
    """Whether a part in a store is read back while the next one is written."""
    os.environ.update(environment)
    met = Barrier(2)

    class Meeting(part_files.PartWriter):
        """Of two parts the first waits for the second before it is read back."""

        def __enter__(self) -> Self:
            if self._uri.endswith("-00001"):
                self._meet()
            return super().__enter__()

        def verify(self) -> None:
            if self._uri.endswith("-00000"):
                self._meet()
            super().verify()

        def _meet(self) -> None:
            with suppress(BrokenBarrierError):
                met.wait(60.0)

    storage = open_storage(settings)
    assert len(_write_parts_of(exchange, uri, 2, Meeting, storage=storage)) == 2
    return not met.broken


def write_damaged(
    exchange: Exchange, uri: str, settings: StorageSettings, environment: dict[str, str]
) -> str:
    """What is said of a part that the store did not keep, of several."""
    os.environ.update(environment)
    storage = open_storage(settings)

    class Damaged(part_files.PartWriter):
        """Another object is in the place of the second part before it is read back."""

        def verify(self) -> None:
            if self._uri.endswith("-00001"):
                storage.write(f"{self._uri}.parquet", b"something else")
            super().verify()

    try:
        _write_parts_of(exchange, uri, 4, Damaged, storage=storage)
    except OutputError as error:
        return str(error)
    return ""


def map_ids(
    exchange: Exchange, names: list[Any], kind: str, probes: list[Any]
) -> tuple[list[Any], np.ndarray, np.ndarray]:
    """Ids and keys of our sub-range of an even cut, and the dense ids of the probes."""
    idmap.ROUND_IDS = 3  # so small that there are many rounds
    ids = _hashed(exchange, names, kind)
    grid = exchange.grid
    ranges = RowRanges(tuple(even_bounds(len(names), grid.graph)), grid.feature)
    assert ids.count == len(names)
    original, keys = ids.original(ranges)
    # Ranks ask for different numbers of ids, one of them for none.
    asked = _arrow(probes, kind)[: len(probes) if grid.rank == 0 else grid.rank - 1]
    return original.tolist(), keys, ids.find(asked)


def digest_ids(exchange: Exchange, names: list[Any], kind: str) -> list[int]:
    """Our share of what says which ids there are."""
    return [int(word) for word in _hashed(exchange, names, kind).digest()]


def keep_strings(exchange: Exchange, count: int, length: int) -> int:
    """Bytes of numpy's arrays that stay for a share of as many strings, once the share has gone."""
    start = exchange.grid.rank * count
    given = pa.array([f"{number:0{length}}" for number in range(start, start + count)])
    tracemalloc.start()
    try:
        ids = HashedIds(exchange, [given], "string", "the nodes")
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert ids.count == exchange.grid.world * count
    return held


def sample_edges(
    exchange: Exchange, graph: Graph, names: list[str] | None, fanout: list[int], seed: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Sources and destinations (dense ids) that our sub-range samples in each layer."""
    if names is None:
        rank = Rank(exchange, graph, make_job())
        keys = rank.keys
    else:
        ids = _hashed(exchange, names, "string")
        dense = ids.find(_arrow(names, "string"))
        rank = Rank(exchange, Graph(dense[graph.src], dense[graph.dst]), make_job())
        keys = ids.original(rank.ranges)[1]
    samples = [
        sample_layer(rank.sub_range, keys, count, seed, layer) for layer, count in enumerate(fanout)
    ]
    return [(s.cols.numpy(), (s.row_ids() + s.first).numpy()) for s in samples]


def _hashed(exchange: Exchange, names: list[Any], kind: str) -> HashedIds:
    """Made from a scattered share of the names, in two batches."""
    order = np.random.default_rng(3).permutation(len(names))
    mine = [names[i] for i in order[exchange.grid.rank :: exchange.grid.world]]
    batches = [_arrow(mine[:5], kind), _arrow(mine[5:], kind)]
    return HashedIds(exchange, batches, kind, "the nodes")


def _arrow(names: list[Any], kind: str) -> pa.Array:
    return pa.array(names, pa.large_string() if kind == "string" else pa.int64())
