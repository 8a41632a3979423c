"""Whether a run computes only what has changed since the current version, and what it keeps for the
next one.

The layers of the current version are kept below the output, with digests of what each row was made
of. Whatever is in doubt makes it a full run, which says why.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

import torch

from embertide._version import __version__
from embertide.context import RunContext
from embertide.errors import EmbertideError
from embertide.kernels.describe import instruction_set, is_compiled
from embertide.pipeline.prepare import Prepared
from embertide.planning.layer_key import layer_key
from embertide.planning.order import WorkOrder
from embertide.plans.dirty import why_whole
from embertide.primitives.objects import broadcast_object
from embertide.spec.manifest import Refresh
from embertide.spec.version_names import begun
from embertide.storage.protocol import Storage
from embertide.telemetry.refresh import FULL_RUN
from embertide.versions.manifest import read_manifest
from embertide.versions.pointer import read_pointer

_log = logging.getLogger("embertide")
FULL = "spec.refresh.mode is full"


@dataclass(frozen=True)
class Base:
    """The current version, if a run may go on from it.

    Attributes:
        version: its name; "": there is none to go on from.
        key: of its kept layers.
        full: the version of the last full run, which its rows rest on.
        how: how its rows were computed.
        basis: what its layers rest on, as their names have it.
        tolerance: by which each of their rows may be wrong, relative to its norm.
        why: why a run does not go on from it; "" where it does, or where nothing was kept.
    """

    version: str = ""
    key: str = ""
    full: str = ""
    how: dict[str, Any] | None = None
    basis: str = ""
    tolerance: float = 0.0
    why: str = ""


@dataclass(frozen=True)
class RefreshPlan:
    """What a run takes over and keeps; the same on every rank.

    Attributes:
        base: that it may go on from.
        keeps: it keeps the rows of its own version.
        key: of its own layers.
        how: how its rows are computed: those of runs that differ here may have other bits.
    """

    base: Base
    keeps: bool
    key: str
    how: dict[str, Any]

    @property
    def goes_on(self) -> bool:
        """Whether rows of the base may be taken over."""
        return bool(self.base.version) and not self.base.why

    @property
    def record(self) -> str:
        """The name of the digests of rows that were computed so."""
        text = json.dumps(self.how, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def plan_refresh(prepared: Prepared, order: WorkOrder) -> RefreshPlan:
    """Look at the current version. Collective: every rank must call."""
    ctx, spec = prepared.ctx, prepared.ctx.job.spec.refresh
    key, how, unfit = layer_key(ctx.job, order.inputs), _how(prepared), _unfit(prepared)
    base = Base()
    if ctx.grid.rank == 0:
        base = _base(prepared, key, how)
    if ctx.grid.world > 1:
        base = Base(**broadcast_object(asdict(base), ctx.grid.rank))
    if unfit:
        base = replace(base, why=unfit if spec.keep or base.version else "")
    if base.why:
        ctx.graph_facts.refresh.whole(base.why)
        if ctx.grid.rank == 0:
            _log.info(FULL_RUN.format(why=base.why))
    return RefreshPlan(base, spec.keep and not unfit, key, how)


def kept_key(storage: Storage, output_uri: str) -> str:
    """The key under which the current version has kept its rows; "" where it has not.

    Raises:
        EmbertideError: its manifest cannot be read.
    """
    pointer = read_pointer(storage, output_uri)
    if pointer is None:
        return ""
    manifest, _ = read_manifest(storage, output_uri, pointer.version)
    return str((manifest.get("layers") or {}).get("key", ""))


def on_one_machine(ctx: RunContext) -> bool:
    """Whether all workers are known to be on one machine."""
    return ctx.grid.world == 1 or ctx.exchange.channel("world", "features").in_place


def _how(prepared: Prepared) -> dict[str, Any]:
    ctx = prepared.ctx
    inference = ctx.job.spec.inference
    sampled = inference.fanout != "full"
    return {
        "release": __version__,
        "torch": torch.__version__,
        "kernels": instruction_set(),
        "device": ctx.device.type,
        "grid": str(ctx.grid.shape),
        "in order": sorted(name for name, own in prepared.loaded.items() if own.placed),
        "rows": inference.rows,
        "fanout": inference.fanout,
        "seed": inference.seed if sampled else 0,
    }


def _unfit(prepared: Prepared) -> str:
    """Why no rows can be taken over, whatever has changed; "": they can."""
    ctx = prepared.ctx
    if ctx.device.type != "cpu":
        return "rows are computed alone on a CPU only"
    if ctx.scratch is not None:
        return "tensors of nodes are on disk, since they exceed the memory of a worker"
    if not is_compiled():
        return "the native kernels are not there, without which rows may be rounded otherwise"
    if not on_one_machine(ctx):
        return "the workers do not share one host's memory"
    if ctx.grid.feature > 1 and ctx.job.spec.inference.rows != "float32":
        return "inference.rows is not float32, on a grid with feature slices"
    sampled = ctx.job.spec.inference.fanout != "full"
    return why_whole(prepared.plan, sampled=sampled)


def _base(prepared: Prepared, key: str, how: dict[str, Any]) -> Base:
    """What the current version has kept; rank 0 asks."""
    ctx = prepared.ctx
    storage, output, spec = ctx.storage, ctx.job.spec.published_uri, ctx.job.spec.refresh
    try:
        pointer = read_pointer(storage, output)
        if pointer is None:
            return Base()
        manifest, _ = read_manifest(storage, output, pointer.version)
    except EmbertideError as error:
        return Base(why=str(error))
    kept = manifest.get("layers")
    if kept is None:
        asked = spec.keep or spec.mode == "incremental"
        return Base(why=f"version {pointer.version} has kept no rows" if asked else "")
    refreshed = manifest.get("refresh", {})
    base = Base(
        version=pointer.version,
        key=kept["key"],
        full=refreshed.get("full", pointer.version),
        how=kept["how"],
        basis=kept.get("basis", ""),
        tolerance=refreshed.get("tolerance", 0.0),
    )
    return replace(base, why=_why_not(base, key, how, spec) if spec.mode != "full" else FULL)


def _why_not(base: Base, key: str, how: dict[str, Any], spec: Refresh) -> str:
    if base.key == key:
        return f"its inputs are those of version {base.version}"
    if base.tolerance > spec.tolerance:
        return (
            f"version {base.version} was computed with refresh.tolerance {base.tolerance:g}, which"
            f" is more than {spec.tolerance:g}"
        )
    age = (datetime.now(UTC) - begun(base.full)).total_seconds()
    if age > spec.full_seconds:
        return f"the last full run, of version {base.full}, is longer ago than refresh.fullEvery"
    before = base.how or {}
    for name, value in how.items():
        if before.get(name) != value:
            return (
                f"version {base.version} was computed with {name} {before.get(name)}, not {value}"
            )
    return ""
