"""What ranks do for the tests of kept layers; light to import, like all that ranks import."""

from __future__ import annotations

import hashlib

import numpy as np

from embertide.primitives.exchange import Exchange
from embertide.stages.infer import Keeping
from embertide.steps import Program
from embertide.storage.opening import open_storage
from embertide.telemetry.kept import KeptFacts
from embertide.versions.layers.places import SEAL
from embertide.versions.layers.store import LayerStore
from embertide.versions.layers.sweeping import objects_of
from tests.support.plans import order_steps
from tests.support.typed_world import TypedRank
from tests.support.world import Graph, Rank, make_features, make_job

Cases = dict[str, tuple[Program, str, bool]]
Graphs = dict[tuple[str, bool], Graph]
VERSION = "20261126T180000Z-3fa9c1"


Answers = dict[str, tuple[np.ndarray, dict[int, np.ndarray]]]
"""Our rows of each case, computed whole, and by the layer after which a run went on."""


def store_of(uri: str, case: str) -> LayerStore:
    """The kept layers of a case."""
    key = hashlib.sha256(case.encode()).hexdigest()[:32]
    return LayerStore(open_storage(None), uri, key, VERSION)


def keep_layers(
    exchange: Exchange, graphs: Graphs, cases: Cases, uri: str, rows: str = "float32"
) -> tuple[dict[str, np.ndarray], dict[str, list[int]]]:
    """Keep every layer of every case; returns our rows, and which layers were kept."""
    ranks, found, kept = _ranks(exchange, graphs, rows), {}, {}
    for name, (program, kind, weighted) in cases.items():
        keeping = Keeping(store_of(uri, name), range(99))
        found[name], facts = _embed(ranks[kind, weighted], program, keeping)
        kept[name] = facts.kept
    return found, kept


def resume_layers(
    exchange: Exchange, graphs: Graphs, cases: Cases, uri: str, rows: str = "float32"
) -> Answers:
    """Our rows of every case, computed whole and after each of its kept layers, the last first."""
    ranks, answers = _ranks(exchange, graphs, rows), {}
    for name, (program, kind, weighted) in cases.items():
        rank, store = ranks[kind, weighted], store_of(uri, name)
        whole, resumed = _embed(rank, program, None)[0], {}
        while True:
            found, facts = _embed(rank, program, Keeping(store, ()))
            if not facts.resumed:
                break
            resumed[facts.resumed] = found
            if exchange.grid.rank == 0:
                drop(store, facts.resumed)
            exchange.barrier()
        answers[name] = whole, resumed
    return answers


def resume_typed(
    exchange: Exchange, programs: list[Program], uri: str
) -> list[list[tuple[int, dict[str, np.ndarray]]]]:
    """Our rows by node type of each program, by the layer after which a run went on, from the last
    to 0, of which nothing was kept."""
    rank, answers = TypedRank(exchange), []
    for number, program in enumerate(programs):
        store, resumed = store_of(uri, str(number)), []
        rank.embed(program, Keeping(store, range(99)))
        while not resumed or resumed[-1][0]:
            facts = rank.ctx.graph_facts.kept = KeptFacts()
            found = rank.embed(program, Keeping(store, ()))
            resumed.append((facts.resumed, found))
            if exchange.grid.rank == 0:
                drop(store, facts.resumed)
            exchange.barrier()
        answers.append(resumed)
    return answers


def drop(store: LayerStore, layer: int) -> None:
    """Remove the seal of a layer."""
    for info in objects_of(store.storage, store.output_uri, store.key):
        if info.uri.endswith(SEAL):
            name = info.uri.rpartition("/")[2].removesuffix(SEAL)
            seal = store.sealed(name)
            if seal is not None and seal.layer == layer:
                store.drop(name)


def _ranks(exchange: Exchange, graphs: Graphs, rows: str) -> dict[tuple[str, bool], Rank]:
    return {
        key: Rank(exchange, graph, make_job(weighted=key[1], rows=rows))
        for key, graph in graphs.items()
    }


def _embed(rank: Rank, program: Program, keeping: Keeping | None) -> tuple[np.ndarray, KeptFacts]:
    facts = rank.ctx.graph_facts.kept = KeptFacts()
    ordered = order_steps(program, rank.ctx.grid.world)
    return rank.embed(ordered, make_features(program.input_width), keeping), facts
