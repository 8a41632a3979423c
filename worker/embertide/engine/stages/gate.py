"""Whether a version may become current: the job's bounds, applied before it is published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from embertide.context import RunContext
from embertide.engine.planning.inputs import Inputs, input_age
from embertide.facts.telemetry.comparison import Comparison
from embertide.facts.telemetry.omissions import Omissions
from embertide.io.compare.gate import Facts, violations
from embertide.spec.gate import Gate
from embertide.spec.result_names import label_of

_BEYOND = "beyond a bound of {whose}: {what}"
_DEFAULT = "the default gate (spec.output.gate sets it)"


@dataclass(frozen=True)
class Verdict:
    """What a gate says of a version.

    Attributes:
        gate: the job's; None where it has none, so that the default bounds warn.
        violations: what is beyond a bound, a sentence for each.
    """

    gate: Gate | None
    violations: list[str]

    @property
    def held(self) -> list[str]:
        """Why the version must not become current; [] where it may."""
        return self.violations if self.gate is not None and self.gate.mode == "hold" else []

    @property
    def warnings(self) -> list[str]:
        """Warnings about a version that becomes current, for the run's user."""
        whose = _DEFAULT if self.gate is None else "spec.output.gate"
        texts = [] if self.held else self.violations
        return [_BEYOND.format(whose=whose, what=text) for text in texts]

    def to_json(self) -> dict[str, Any]:
        """As the version's manifest has it."""
        mode = None if self.gate is None else self.gate.mode
        return {"mode": mode, "violations": self.violations}


def judge(
    ctx: RunContext,
    inputs: Inputs,
    comparison: Comparison,
    omissions: Omissions,
    compared: Mapping[str, dict[str, Any]],
) -> Verdict:
    """Apply the job's gate; rank 0 calls.

    Args:
        compared: key of a result -> how it agrees with the model's reference.
    """
    gate = ctx.job.spec.output.gate
    bounds = gate or Gate()
    if comparison.state == "off":
        return Verdict(gate, [])
    age = None if bounds.max_input_age is None else input_age(ctx.storage, inputs)
    facts = Facts(
        comparison=comparison,
        dropped=list(omissions.dropped_edges),
        reference_errors={label_of(key): of["largest_error"] for key, of in compared.items()},
        input_age=age,
    )
    return Verdict(gate, violations(bounds, facts))
