"""What a run did, as plain data, beside what was planned of it.

All is made far from the terminal, travels as JSON and is drawn by the command line, so it
knows nothing of torch, files or tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from embertide.facts.telemetry.chosen import ChosenFacts
from embertide.facts.telemetry.comparison import Comparison
from embertide.facts.telemetry.format import human_seconds
from embertide.facts.telemetry.kept import KeptFacts
from embertide.facts.telemetry.notebook import html_table
from embertide.facts.telemetry.omissions import Omissions
from embertide.facts.telemetry.refresh import RefreshFacts
from embertide.facts.telemetry.self_check import SelfCheck
from embertide.facts.telemetry.transfers import TransferStats
from embertide.plain import Plain
from embertide.spec.grid import GridShape

WAIT_BUCKETS = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)
"""Upper ends, in seconds, of the buckets of :attr:`Traffic.waits`; the last one has none."""


@dataclass(frozen=True)
class Traffic:
    """What moved over one axis for one primitive, layer and relation, summed over the ranks.

    ``layer`` is -1 outside the layers, ``relation`` is "" where none is known. ``groups`` are
    receive buffers filled, the largest of which took ``largest_group_bytes``.
    ``bytes_read_in_place`` were read in the memory of workers of the same host, where nothing
    moves: once for each edge that reads a row. ``wait_seconds`` is time blocked on peers, and
    ``waits`` counts the waits by their length (``WAIT_BUCKETS``);
    ``compute_seconds`` is time that was computed while data travelled. ``depth`` is the largest
    number of groups in flight at a time.
    ``most_bytes_sent`` and ``longest_wait_seconds`` are those of the rank that has the most.
    """

    axis: str
    primitive: str
    layer: int
    bytes_sent: int
    bytes_received: int
    messages: int
    groups: int
    largest_group_bytes: int
    wait_seconds: float
    compute_seconds: float
    waits: list[int] = field(default_factory=list)
    depth: int = 0
    most_bytes_sent: int = 0
    longest_wait_seconds: float = 0.0
    relation: str = ""
    bytes_read_in_place: int = 0


@dataclass(frozen=True)
class RankMemory:
    """Memory of one rank in bytes; ``planned_bytes`` and the use are beyond the baseline.

    The baseline is the process after its imports, before it read anything; ``stage_bytes`` is
    each stage's peak beyond it. ``container_peak_bytes`` is all that its container held, imports
    and further processes included; 0 outside a pod, and where the system does not count it.
    """

    rank: int
    baseline_bytes: int
    peak_bytes: int
    planned_bytes: int
    stage_bytes: dict[str, int] = field(default_factory=dict)
    container_peak_bytes: int = 0

    @property
    def used_bytes(self) -> int:
        """What the work itself took at its peak."""
        return max(0, self.peak_bytes - self.baseline_bytes)


@dataclass(frozen=True)
class Span:
    """A stage of one worker, or its share in one layer, which lies within ``infer``.

    ``layer`` is -1 for a whole stage; the conversion of the last layer's result has the number of
    layers. ``start`` and ``end`` are seconds since the first worker began, on all workers' common
    clock. ``wait_seconds`` of them were blocked on peers, ``compute_seconds`` were computed while
    data travelled. ``bytes_sent``, ``bytes_received``, ``messages`` (sent) and ``groups``
    (received) moved meanwhile, and ``bytes_read_in_place`` were read where they stand.
    """

    stage: str
    layer: int
    start: float
    end: float
    wait_seconds: float
    compute_seconds: float
    bytes_sent: int = 0
    bytes_received: int = 0
    messages: int = 0
    groups: int = 0
    bytes_read_in_place: int = 0

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


@dataclass(frozen=True)
class WorkerReport(Plain):
    """What one worker held, sent and did when.

    ``nodes`` and ``edges`` are those of its sub-range: its rows, and the edges into them.
    ``peers_on_host`` are those whose memory it could read directly; ``sent_by_axis`` maps an axis
    of the grid to its share of ``bytes_sent``. ``bytes_read_in_place`` are those that it read in
    their memory. ``scratch_bytes_written`` and ``scratch_bytes_read`` went to its scratch files and
    came from them, which had ``scratch_peak_bytes`` at most; 0 where all tensors are in memory.
    """

    rank: int
    nodes: int
    edges: int
    bytes_sent: int
    bytes_received: int
    wait_seconds: float
    compute_seconds: float
    peers_on_host: int
    spans: list[Span] = field(default_factory=list)
    sent_by_axis: dict[str, int] = field(default_factory=dict)
    bytes_read_in_place: int = 0
    scratch_bytes_written: int = 0
    scratch_bytes_read: int = 0
    scratch_peak_bytes: int = 0


@dataclass(frozen=True)
class TypeCount:
    """A node type: how many nodes, the width of their features and of their embeddings.

    A width is 0 where there are none; of several results the widest counts.
    """

    name: str
    nodes: int
    width: int
    output_width: int


@dataclass(frozen=True)
class RelationCount:
    """A relation, as ``source:name:destination``: how many edges, exact or guessed."""

    name: str
    edges: int
    exact: bool = True


@dataclass(frozen=True)
class LayerFacts:
    """A layer of the model: its convolution and the columns of its result."""

    conv: str
    width: int


@dataclass(frozen=True)
class RowError:
    """What rows in another type than float32 made of the embeddings, in the rows of a reference.

    ``largest_error`` is a share of the reference's largest magnitude.
    """

    rows: int
    largest_difference: float
    largest_error: float


@dataclass(frozen=True)
class RunFacts:
    """What was run with: the model as it was read, and the settings that decide a run's speed.

    ``parameters`` counts the model's values, ``graph_layers`` its layers that read edges, ``cores``
    those of rank 0's machine; ``group_bytes`` and ``depth`` are the manifest's, ``row_type`` is its
    ``rows``; ``row_error`` is None with float32, and where there was nothing to compare with.
    """

    library: str
    input_width: int
    parameters: int
    layers: list[LayerFacts]
    graph_layers: int
    device: str
    threads: int
    cores: int
    group_bytes: int
    depth: int
    row_type: str = "float32"
    row_error: RowError | None = None


@dataclass(frozen=True)
class PlannedTraffic:
    """Predicted traffic of one worker: bytes it sends for one primitive, layer and relation.

    ``fewest_messages`` says how few the messages may be where a run finds out how many groups
    travel in one; None where ``messages`` is all there is to say.
    """

    axis: str
    primitive: str
    layer: int
    bytes_per_worker: int
    messages: int
    relation: str = ""
    fewest_messages: int | None = None


@dataclass(frozen=True)
class RunReport(Plain):
    """One published version and what it cost.

    ``stages`` maps a stage to its seconds in the order they ran, the slowest rank counting.
    ``current`` says whether LATEST names the version. ``kernels`` says what computed: native code
    and its instruction set, or torch and why. ``planned_memory`` maps a stage to the bytes of the
    fullest worker beyond its imports; ``planned_traffic`` is one worker's, ``storage``
    is the traffic of all with object stores.
    ``total_seconds`` begin when workers do, ``start_seconds`` are those before: from the start of
    the command, or of the attempt in a pod (0: unknown).
    ``types`` and ``relations`` are what the run read of the graph; ``nodes`` and ``edges`` are of
    all of them, and ``dim`` is the width of the widest embeddings. ``began`` is when the first
    worker began, in seconds since the epoch by rank 0's clock (0: unknown); spans count from it.
    ``omissions`` is what the run did without, which ``warnings`` say in sentences.
    ``comparison`` is that with the version that was current before (None: not known);
    ``kept`` says which layers were kept for a next attempt, and after which the run went on;
    ``refresh`` which rows were taken over of the version before; ``chosen`` which nodes' rows alone
    were wanted, and what these took.
    ``budget`` compares the plan with the memory that a worker may take ("": no limit is set).
    ``self_check`` is what computing rows of the layers a second time gave (None: not known).
    ``held`` says why a gate keeps the version from being current.
    ``not_current`` says why the version is not current though nothing holds it ("": it is).
    ``not_removed`` says why versions that the job does not keep are still there ("": they are not);
    it is one of the ``warnings`` too.
    ``confirmed`` is True where a run computed nothing, since the current version is what it would
    compute: all but ``warnings`` is then of the run that computed it.
    """

    version: str
    uri: str
    rows: int
    dim: int
    manifest_digest: str
    grid: GridShape
    nodes: int
    edges: int
    stages: dict[str, float]
    total_seconds: float
    ingest_edges_per_second: float
    infer_edges_per_second: float
    traffic: list[Traffic] = field(default_factory=list)
    memory: list[RankMemory] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    current: bool = True
    kernels: str = ""
    workers: list[WorkerReport] = field(default_factory=list)
    planned_memory: dict[str, int] = field(default_factory=dict)
    planned_traffic: list[PlannedTraffic] = field(default_factory=list)
    storage: TransferStats = field(default_factory=TransferStats)
    facts: RunFacts | None = None
    types: list[TypeCount] = field(default_factory=list)
    relations: list[RelationCount] = field(default_factory=list)
    start_seconds: float = 0.0
    began: float = 0.0
    omissions: Omissions = field(default_factory=Omissions)
    not_removed: str = ""
    not_current: str = ""
    confirmed: bool = False
    comparison: Comparison | None = None
    held: list[str] = field(default_factory=list)
    kept: KeptFacts = field(default_factory=KeptFacts)
    refresh: RefreshFacts = field(default_factory=RefreshFacts)
    chosen: ChosenFacts = field(default_factory=ChosenFacts)
    self_check: SelfCheck | None = None
    budget: str = ""

    def _repr_html_(self) -> str:
        """For notebooks."""
        facts = {
            "Version": self.version,
            "URI": self.uri,
            "Rows": f"{self.rows:,} of {self.dim} values",
            "Edges": f"{self.edges:,}",
            "Grid": self.grid,
            "Duration": human_seconds(self.total_seconds),
            "Current": "yes" if self.current else f"no: {self.not_current}".rstrip(": "),
            "Held": "; ".join(self.held),
        }
        return html_table("Published", facts, self.warnings)

    def to_json(self) -> dict[str, Any]:
        """Plain values; :meth:`from_json` is the way back."""
        grid, omissions = [self.grid.graph, self.grid.feature], self.omissions.to_json()
        return {**super().to_json(), "grid": grid, "omissions": omissions}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What :meth:`to_json` described."""
        return super().from_json({**data, "grid": GridShape.of(*data["grid"])})
