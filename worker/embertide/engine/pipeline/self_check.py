"""The self-check of a run: what computes rows of the layers again, and what its result leads to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from embertide.engine.pipeline.prepare import Prepared
from embertide.engine.stages.infer import Arrangement
from embertide.errors import SelfCheckFailed
from embertide.facts.telemetry.self_check import OFF, Fault, SelfCheck
from embertide.layouts import ROW_TYPES
from embertide.program.selfcheck.checker import Checker
from embertide.program.selfcheck.judge import Limits

FAILED = (
    "{rows} of {checked} rows that were computed a second time, in float64, differ from the run's"
    " own:\n{faults}\nNothing was published: the fault is not in the inputs, but in a worker's"
    " memory, in what workers sent each other, or in a kernel. Run the job again. If it fails on"
    " the same machine only, replace the machine; if it fails at the same layer everywhere, report"
    " it with this message. spec.inference.checkedRows: 0 publishes without this check"
)
OVERFLOWED = (
    "{rows} of {checked} rows that were computed a second time, in float64, differ from the run's"
    " own, and are made of values so large that float32 overflows (3.4e38) with them, their"
    " squares or their sums:\n{faults}\nNothing was published: the embeddings are finite numbers,"
    " but wrong. Check the model's weights, the features and the edge weights"
)


@dataclass
class SelfChecking:
    """Makes the checker of a run's layers; 0 rows make none.

    Attributes:
        version: that is computed; other rows are drawn for the next one.
    """

    prepared: Prepared
    version: str
    _checker: Checker | None = None

    def __call__(self, layers: Arrangement) -> Checker | None:
        """Called before the layer graphs are made."""
        inference = self.prepared.ctx.job.spec.inference
        if inference.checked_rows == 0:
            return None
        digest = hashlib.sha256(self.version.encode()).digest()
        self._checker = Checker(
            exchange=layers.exchange,
            plan=layers.plan,
            ranges=layers.ranges,
            wanted=inference.checked_rows,
            seed=int.from_bytes(digest[:4], "little"),
            limits=Limits(ROW_TYPES[inference.rows]),
            name_of=self._name_of,
        )
        return self._checker

    def finish(self, embeddings: Mapping[str, Tensor]) -> SelfCheck:
        """The result, the same on every rank. Collective: every rank must call.

        Where float32 overflows and embeddings are not finite, it is left to publishing to refuse
        them.

        Args:
            embeddings: key of a result -> [N/(P*M), D'] float32.

        Raises:
            SelfCheckFailed: rows differ by more than they may.
        """
        if self._checker is None:
            return SelfCheck(state=OFF)
        check = self._checker.finish()
        beyond = sum(rows.beyond for rows in check.checked)
        overflowed = sum(rows.overflowed for rows in check.checked)
        if beyond:
            raise _failed(FAILED, beyond, check, check.faults)
        if overflowed and self._all_finite(embeddings):
            raise _failed(OVERFLOWED, overflowed, check, check.overflows)
        return check

    def _all_finite(self, embeddings: Mapping[str, Tensor]) -> bool:
        """Whether all ranks' embeddings are. Collective: every rank must call."""
        ours = all(bool(values.isfinite().all()) for values in embeddings.values())
        return all(self.prepared.ctx.exchange.all_objects(ours))

    def _name_of(self, node_type: str, node: int) -> str:
        """The id of a node of ours in the files."""
        located = self.prepared.graph.located[self.prepared.names[node_type]]
        first, _ = located.ranges.worker(self.prepared.ctx.grid.rank)
        name = located.names[node - first]
        return repr(name.as_py()) if hasattr(name, "as_py") else str(name)


def _failed(message: str, rows: int, check: SelfCheck, faults: Sequence[Fault]) -> SelfCheckFailed:
    listed = "\n".join(f"  {fault}" for fault in faults)
    return SelfCheckFailed(message.format(rows=rows, checked=check.rows, faults=listed))
