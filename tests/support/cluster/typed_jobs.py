"""Inputs of several node types in the cluster's S3 server, and what a job on them publishes."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch

from embertide.io.versions.reading import iter_embeddings
from embertide.models.read import read_model
from embertide.models.reference import LayerGraph, run_typed_reference
from embertide.spec.inputs import EdgeInput, Input
from embertide.spec.manifest import EmbeddingJob
from tests.support.cluster.jobs import Inputs
from tests.support.exact import assert_exact


class TypedInputs(Inputs):
    """Made by ``embertide synth --hetero``: ids are dense, edges have no weights."""

    @property
    def given(self) -> Input:
        """``spec.input``."""
        return EmbeddingJob.model_validate(self.manifest).spec.input

    @cached_property
    def counts(self) -> dict[str, int]:
        """Node type -> nodes."""
        return {node.name: node.count or 0 for node in self.given.nodes}

    @cached_property
    def edges(self) -> dict[str, LayerGraph]:
        """Relation -> its edges; a reverse has those of its own, turned round."""
        found: dict[str, LayerGraph] = {}
        for edge in self.given.edges:
            source, destination = self._ends(edge)
            found[str(edge.relation)] = (source, destination, None)
            for turned in edge.relations[1:]:
                found[str(turned)] = (destination, source, None)
        return found

    @cached_property
    def references(self) -> dict[str, np.ndarray]:
        """Node type -> [N, D'] of the slow float64 reference, by node."""
        program = read_model(self.storage, self.manifest["spec"]["model"]["uri"])
        features = {
            node.name: self._features(node.features.location)
            for node in self.given.nodes
            if node.features is not None
        }
        layers = [self.edges] * program.layers
        found = run_typed_reference(program, layers, features, self.counts)
        return {name: values.numpy() for name, values in found.items()}

    def check_types(self, output: str, names: list[str]) -> None:
        """The current version holds the reference's embeddings of all nodes of these types."""
        for name in names:
            batches = list(iter_embeddings(self.storage, output, node_type=name))
            ids = np.concatenate([ids for ids, _ in batches])
            found = np.concatenate([values for _, values in batches])[np.argsort(ids)]
            assert np.array_equal(np.sort(ids), np.arange(self.counts[name]))
            assert_exact(found, self.references[name])

    def _ends(self, edge: EdgeInput) -> list[torch.Tensor]:
        table = self._table(edge.location)
        return [torch.tensor(table.column(name).to_numpy()) for name in ("src", "dst")]

    def _features(self, uri: str) -> torch.Tensor:
        table: Any = self._table(uri)
        rows = np.stack(table.column("x").to_pylist())[np.argsort(table.column("id"))]
        return torch.from_numpy(rows)
