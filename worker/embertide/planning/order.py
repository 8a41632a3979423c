"""The work order: what every worker of a run is given, the same for each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from embertide.planning.inputs import Inputs


@dataclass(frozen=True)
class WorkOrder:
    """What to read, which version to write, and how much memory that was planned to take.

    Attributes:
        planned_bytes: of the fullest worker, beyond its imports.
    """

    inputs: Inputs
    version: str
    planned_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Plain values; :meth:`from_json` is the way back."""
        return {**asdict(self), "inputs": self.inputs.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> WorkOrder:
        """What :meth:`to_json` described."""
        return cls(**{**data, "inputs": Inputs.from_json(data["inputs"])})
