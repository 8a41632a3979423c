"""The shape of the grid of workers: graph partitions times feature partitions."""

from __future__ import annotations

import re
from typing import Self

from pydantic import Field, model_validator

from embertide.spec.base import SpecModel, raise_problems

MAX_WORKERS = 1024
"""The maximum number of workers of one job."""
_TEXT = re.compile(r"0*([1-9][0-9]{0,5})[xX]0*([1-9][0-9]{0,5})")


class GridShape(SpecModel):
    """The grid of workers: graph partitions times feature partitions."""

    graph: int = Field(
        default=1, ge=1, le=MAX_WORKERS, description="Number of graph partitions, P."
    )
    feature: int = Field(
        default=1, ge=1, le=MAX_WORKERS, description="Number of feature partitions, M."
    )

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        if self.workers > MAX_WORKERS:
            raise_problems([((), f"is {self}, {self.workers} workers; at most {MAX_WORKERS}")])
        return self

    @classmethod
    def of(cls, graph: int, feature: int) -> Self:
        """The shape P x M, ``graph`` x ``feature``."""
        return cls(graph=graph, feature=feature)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The shape that a text such as ``2x2`` names; the inverse of ``str``.

        Raises:
            ValueError: any other text.
        """
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(
                f"{text!r} must be GRAPHxFEATURE, two whole numbers from 1, such as 2x2"
            )
        graph, feature = int(found[1]), int(found[2])
        if graph * feature > MAX_WORKERS:
            workers = graph * feature
            raise ValueError(f"{text!r} has {workers} workers; a job has at most {MAX_WORKERS}")
        return cls.of(graph, feature)

    @property
    def workers(self) -> int:
        """Number of workers: W = P * M."""
        return self.graph * self.feature

    def coordinates(self, rank: int) -> tuple[int, int]:
        """A worker's graph partition p and feature slice m; rank = p * M + m."""
        return divmod(rank, self.feature)

    def describe(self, rank: int) -> str:
        """How messages name a worker: rank and coordinates."""
        p, m = self.coordinates(rank)
        return f"worker {rank} of {self.workers} (graph {p}, feature {m})"

    def __str__(self) -> str:
        return f"{self.graph}x{self.feature}"
