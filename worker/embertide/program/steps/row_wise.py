"""Any function of a row, written as a few lines of torch's operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from embertide.kernels.memory import empty_as
from embertide.layouts import Shard
from embertide.program.steps.base import Param, Read, Step
from embertide.program.steps.execution import Execution
from embertide.program.steps.op import Op
from embertide.program.steps.ops import RESULT, RowShapes, in_chunks, run, shapes_of, width_of
from embertide.program.steps.reference import ReferenceRun
from embertide.program.steps.shapes import Shapes

CHUNK_VALUES = 1 << 21
"""Numbers that the lines hold at a time: what is between them stays small."""


@dataclass(frozen=True, kw_only=True)
class RowWise(Step, kind="row_wise"):
    """out = what ``lines`` make of each row of ``inputs``, in the ``rows`` layout.

    Lines read the inputs as ``x0``, ``x1``, ... and the parameters as ``p0``, ``p1``, ..., and
    make ``out`` [N, width]; `ops` has the operations.
    """

    inputs: tuple[Read, ...]
    lines: tuple[str, ...]
    params: tuple[Param, ...] = ()

    whole: ClassVar[bool] = True
    reads_rows: ClassVar[bool] = True

    def width(self, shapes: Shapes) -> int:
        """Columns of ``out``."""
        return width_of(self._shapes(shapes))

    def _shapes(self, shapes: Shapes) -> RowShapes:
        rows = {f"x{at}": shapes.width(name) for at, name in enumerate(self.inputs)}
        params = {f"p{at}": shapes.param(name) for at, name in enumerate(self.params)}
        return shapes_of(self.lines, rows, params)

    def reference(self, run_: ReferenceRun) -> Tensor:
        """The lines, on all rows at once."""
        values = {f"x{at}": run_.tensors[name] for at, name in enumerate(self.inputs)}
        values |= {f"p{at}": run_.params[name] for at, name in enumerate(self.params)}
        return run(self.lines, values)[RESULT]

    def lower(self, execution: Execution, _op: Op) -> Shard:
        """In ``rows``, a bounded number of them at a time. Collective: every rank must call."""
        program = execution.program
        inputs = [execution.rows(name, self.layer) for name in self.inputs]
        params = {f"p{at}": execution.param(name) for at, name in enumerate(self.params)}
        shapes = Shapes(program.widths, program.params)
        out = empty_as(inputs[0], inputs[0].shape[0], program.widths[self.out])
        for span in in_chunks(out, self.rows_at_once(shapes)):
            rows = {f"x{at}": x[span] for at, x in enumerate(inputs)}
            out[span] = run(self.lines, rows | params)[RESULT]
        return Shard("rows", out, out.shape[1])

    def rows_at_once(self, shapes: Shapes) -> int:
        """As many as hold a bounded number of values."""
        return max(1, CHUNK_VALUES // self._shapes(shapes).values)

    def flops_per_node(self, widths: dict[str, int]) -> float:
        """As if every input were multiplied into the result."""
        return 2.0 * sum(widths[name] for name in self.inputs) * widths[self.out]
