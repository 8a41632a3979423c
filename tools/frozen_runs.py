"""Runs of small jobs of many kinds: what each leaves in its manifest, report and status.

What differs from run to run or by machine is replaced: times, digests, folders, memory and sizes by
``~``, versions by their order. Fractions are replaced too, since their last digits are the
processor's.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from embertide.errors import EmbertideError
from embertide.launch.local import run_job
from embertide.pod.endings import ending_of
from embertide.pod.summary import output_report, run_status
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob, load_manifest
from tests.support.job_files import WIDTH, write_job
from tests.support.small_job import NODES, SmallJob
from tests.support.small_job import WIDTH as SMALL_WIDTH
from tests.support.typed_files import write_typed_job
from tests.support.typed_programs import carrying, relational
from tests.support.world import make_features, make_graph

Edit = Callable[[SmallJob], object]


@dataclass(frozen=True)
class Run:
    """A job, and what comes before the run of it that is shown.

    Attributes:
        spec: fields of a small job, by their paths, as :meth:`SmallJob.write_manifest` has them.
        edits: of the small job; after all but the last one it runs as well.
        other: another job in a folder, in place of the small one.
    """

    grid: str = "1x1"
    spec: dict[str, Any] = field(default_factory=dict)
    edits: tuple[Edit, ...] = (lambda _job: None,)
    other: Callable[[Path], EmbeddingJob] | None = None


def _features(job: SmallJob, scale: float = 1.0, changed: int = 0) -> None:
    """The features times ``scale``, with others for the first ``changed`` nodes."""
    values = np.random.default_rng(0).normal(size=(NODES, SMALL_WIDTH)) * scale
    values[:changed] += 1.0
    job.write_features(np.arange(NODES), values)


def _weights(job: SmallJob) -> None:
    ids = np.arange(NODES)
    job.write_edges(ids, np.roll(ids, 1), w=np.linspace(0.5, 1.5, NODES, dtype=np.float32))


def _typed(folder: Path, *, of_edges: bool = False) -> EmbeddingJob:
    program = carrying() if of_edges else relational()
    return load_manifest(json.dumps(write_typed_job(folder, program, edge_features=of_edges)))


def _named(folder: Path, **options: Any) -> EmbeddingJob:
    return write_job(folder, make_graph(weighted=True), make_features(WIDTH), **options).job


SAME, FIRST = (lambda _job: None), partial(_features, changed=1)
EDGES, OUTPUT = "input__edges__0__", "output__"

RUNS: dict[str, Run] = {
    "one worker": Run(),
    "2x1": Run("2x1"),
    "1x2": Run("1x2"),
    "2x2": Run("2x2"),
    "npy": Run(spec={f"{OUTPUT}format": "npy"}),
    "float16": Run(spec={f"{OUTPUT}dtype": "float16"}),
    "rows in bfloat16": Run("2x1", {"inference__rows": "bfloat16"}),
    "sampled neighbours": Run("2x1", {"inference__fanout": [2, 1], "inference__seed": 7}),
    "weights of edges": Run(spec={f"{EDGES}columns": {"weight": "w"}}, edits=(_weights,)),
    "both directions": Run(spec={f"{EDGES}directed": False}),
    "targets": Run("2x1", {"inference__targets": {"ids": [7, 3]}}),
    "no rows checked": Run(spec={"inference__checkedRows": 0}),
    "a second version": Run("2x1", edits=(SAME, FIRST)),
    "versions removed": Run(spec={f"{OUTPUT}keepVersions": 1}, edits=(SAME, SAME, SAME)),
    "layers kept": Run("2x1", {"refresh": {"keep": True}}),
    "refreshed": Run(
        "2x1", {"refresh": {"keep": True, "mode": "incremental"}}, edits=(SAME, FIRST)
    ),
    "confirmed": Run(spec={"refresh": {"keep": True, "mode": "auto"}}, edits=(SAME, SAME)),
    "held by a gate": Run(
        spec={f"{OUTPUT}gate": {}}, edits=(SAME, partial(_features, scale=0.0))
    ),
    "deltas": Run(spec={f"{OUTPUT}delta": {}}, edits=(SAME, FIRST)),
    "several node types": Run("2x1", other=_typed),
    "features of edges": Run(other=partial(_typed, of_edges=True)),
    "ids of text": Run("2x1", other=partial(_named, ids="string")),
    "large ids, edges in csv": Run(other=partial(_named, ids="int64", edges="csv")),
    "fails by its model": Run(edits=(lambda job: job.write_model(SMALL_WIDTH + 1),)),
    "fails by its features": Run("2x1", edits=(partial(_features, scale=np.nan),)),
}  # fmt: skip


def sections() -> dict[str, Callable[[], str]]:
    """What each run leaves, a field a line, with a line for the fields that are replaced."""
    return {name: partial(_shown, run) for name, run in RUNS.items()}


def _shown(run: Run) -> str:
    with tempfile.TemporaryDirectory() as folder:
        left = _left(run, Path(folder))
        shown = "".join(f"{line}\n" for name, data in left.items() for line in _lines(data, name))
        shown = shown.replace(folder, "FOLDER")
    for number, version in enumerate(dict.fromkeys(_VERSION.findall(shown)), 1):
        shown = shown.replace(version, f"VERSION{number}")
    return shown


def _left(run: Run, folder: Path) -> dict[str, Any]:
    grid = GridShape.parse(run.grid)
    try:
        if run.other is not None:
            job = run.other(folder)
            report = run_job(job, grid=grid, threads=1)
        else:
            small = SmallJob.make(folder)
            small.write_manifest(**run.spec)
            job = load_manifest(Path(small.manifest))
            for edit in run.edits:
                edit(small)
                report = run_job(job, grid=grid, threads=1)
    except EmbertideError as error:
        return {"ending": _json(ending_of(error))}
    manifest = json.loads(Path(report.uri[len("file://") :], "_manifest.json").read_text())
    shown = json.loads(json.dumps(report.to_json()))
    for key, same in (("comparison", "comparison"), ("self_check", "selfCheck")):
        if shown[key] == manifest.get(same):
            shown[key] = "as in the manifest"
    return {
        "manifest": manifest,
        "report": shown,
        "status.output": _json(output_report(report, job)),
        "status.report": _json(run_status(report, 1)),
    }


def _json(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


_VERSION = re.compile(r"\b\d{8}T\d{6}Z-[0-9a-f]{6}\b")
_DIGEST = re.compile(r"\b[0-9a-f]{32,}\b")
_VARIES = re.compile(
    r"(?i)(seconds|per_second|digest|etag|sha256|\bsize|\bids_size|\bcreated|\bbegan|\bstart|\bend"
    r"|\bwaits|\bcounts|\bbelow|kernels|\bcores|\bthreads|peak_?bytes|baseline_bytes)$"
    r"|\b(memory|planned_memory|libraries|stage_bytes|quantiles)\b|workers\[\d+\]\.plannedBytes"
)
"""Paths of fields whose values differ."""
_EXACT = re.compile(r"(?i)(tolerance|overlap)$")
"""Paths of fractions that do not."""
_FRACTION = re.compile(r"\d+\.\d+(e-?\d+)?")


def _lines(data: Any, path: str) -> Iterator[str]:
    """Leaves with their paths; of each object, the names of the fields that are replaced."""
    if isinstance(data, dict):
        replaced = [name for name, value in data.items() if _varies(value, f"{path}.{name}")]
        if replaced:
            yield f"{path} ~ {', '.join(replaced)}"
        for name, value in data.items():
            if name not in replaced:
                yield from _lines(value, f"{path}.{name}")
    elif isinstance(data, list) and any(isinstance(item, dict | list) for item in data):
        for number, item in enumerate(data):
            yield from _lines(item, f"{path}[{number}]")
    else:
        text = json.dumps(data, ensure_ascii=False)
        yield f"{path} {text if _EXACT.search(path) else _FRACTION.sub('~', text)}"


def _varies(value: Any, path: str) -> bool:
    if value is None or value in ([], {}):
        return False
    if isinstance(value, float):
        return not _EXACT.search(path)
    return bool(_VARIES.search(path)) or (isinstance(value, str) and bool(_DIGEST.search(value)))
