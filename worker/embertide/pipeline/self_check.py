"""The self-check of a run: what computes rows of the layers again, and what its result leads to."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from embertide.errors import SelfCheckFailed
from embertide.layouts import ROW_TYPES
from embertide.pipeline.prepare import Prepared
from embertide.selfcheck.checker import Checker
from embertide.selfcheck.judge import Limits
from embertide.stages.infer import Arrangement
from embertide.telemetry.self_check import OFF, SelfCheck

FAILED = (
    "{rows} of {checked} rows that were computed a second time, in float64, differ from the run's"
    " own:\n{faults}\nNothing was published: the fault is not in the inputs, but in a worker's"
    " memory, in what workers sent each other, or in a kernel. Run the job again. If it fails on"
    " the same machine only, replace the machine; if it fails at the same layer everywhere, report"
    " it with this message. spec.inference.checkedRows: 0 publishes without this check"
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

    def finish(self) -> SelfCheck:
        """The result, the same on every rank. Collective: every rank must call.

        Raises:
            SelfCheckFailed: rows differ by more than they may.
        """
        if self._checker is None:
            return SelfCheck(state=OFF)
        found = self._checker.finish()
        beyond = sum(one.beyond for one in found.checked)
        if beyond:
            faults = "\n".join(f"  {fault}" for fault in found.faults)
            raise SelfCheckFailed(FAILED.format(rows=beyond, checked=found.rows, faults=faults))
        return found

    def _name_of(self, node_type: str, node: int) -> str:
        """The id of a node of ours in the files."""
        located = self.prepared.graph.located[self.prepared.names[node_type]]
        first, _ = located.ranges.worker(self.prepared.ctx.grid.rank)
        name = located.names[node - first]
        return repr(name.as_py()) if hasattr(name, "as_py") else str(name)
