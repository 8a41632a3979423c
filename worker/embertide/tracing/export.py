"""``embertide export``: a module becomes a folder, once the proof holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from embertide.facts.telemetry.notebook import html_table
from embertide.io.storage.protocol import Storage
from embertide.models.builder import ProgramBuilder
from embertide.models.folder import Exported, FolderFiles
from embertide.models.folder_reading import parse_folder
from embertide.models.folder_writing import folder_files
from embertide.models.read import ExportedModel
from embertide.models.summary import ModelSummary, summarise
from embertide.models.weight_files import read_weights
from embertide.models.weights import Weights
from embertide.program.steps import WeightsOf
from embertide.tracing.categories import CategoriesOf, check_columns, with_features_of_categories
from embertide.tracing.decoder import export_decoder
from embertide.tracing.explanation import Explanation, Understood, explain
from embertide.tracing.forward.entry import unwrapped, with_encoder
from embertide.tracing.forward.prepare import (
    edge_columns,
    find_types,
    find_weighted,
    prepare,
    reached,
)
from embertide.tracing.forward.relations import in_order
from embertide.tracing.forward.subject import Subject
from embertide.tracing.graph_types import named_types
from embertide.tracing.load import build, load_weights, refuse_lazy, refuse_types
from embertide.tracing.lower.functions import lower_function
from embertide.tracing.lower.lowering import Lowered, Lowering, bound_names
from embertide.tracing.lower.row_wise import emit
from embertide.tracing.prove.proof import Proof, prove
from embertide.tracing.record.graphs import GraphTypes, RandomGraph, random_graph
from embertide.tracing.record.precision import quiet
from embertide.tracing.record.tables import (
    RowsBelow,
    TableNames,
    below,
    check_read,
    find_tables,
    with_tables,
)
from embertide.tracing.sample import Sample
from embertide.tracing.sample_files import read_sample_file
from embertide.tracing.table_rows import TableIds, check_ids, read_table_ids, stored_tables

NODES, SEED = 31, 1
"""Nodes of the graph that is traced, and the seed of its random numbers."""


@dataclass(frozen=True)
class Export:
    """A module as a program, proved but not written.

    Attributes:
        sample: columns, categories and types that a sample gave, or options beside it; None
            without a sample.
        explanation: what was understood: arguments, graph, layers with lines of the user's code.
    """

    exported: Exported
    files: FolderFiles
    proof: Proof
    explanation: Explanation
    sample: Sample | None = None

    def __repr__(self) -> str:
        return f"Export of {self.explanation!r}{self._sampled()}"

    def _repr_html_(self) -> str:
        """For notebooks."""
        notes = [self._sampled().strip()] if self.sample is not None else []
        return html_table(f"{self.explanation.module}, exported", self.explanation.facts(), notes)

    def _sampled(self) -> str:
        return "" if self.sample is None else f"\nFrom the sample: {self.sample}"

    @property
    def summary(self) -> ModelSummary:
        """Layer by layer."""
        model = ExportedModel(self.exported)
        return summarise(self.exported.program, model.library, model.layer_names)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        sample = {} if self.sample is None else {"sample": self.sample.to_json()}
        proof = {"proof": self.proof.to_json(), "warnings": self.proof.warnings}
        return {**self.summary.to_json(), **sample, **proof}

    def write(self, storage: Storage, uri: str) -> None:
        """Write the folder; what is read first comes last, so that it is never half there."""
        for name, data in self.files.in_order():
            storage.write(f"{uri.rstrip('/')}/{name}", data)


def export_module(
    module: nn.Module,
    *,
    inputs: Mapping[str, str] | None = None,
    width: int | None = None,
    init: Mapping[str, Any] | None = None,
    graph: GraphTypes | None = None,
    tables: TableNames | None = None,
    table_ids: Mapping[str, TableIds] | None = None,
    edge_features: int | None = None,
    weighted: bool = False,
    categories: CategoriesOf | None = None,
    edge_categories: CategoriesOf | None = None,
    results: Sequence[str] = (),
    decoder: str | nn.Module | None = None,
    understood: Understood | None = None,
) -> Export:
    """Trace a module and prove the program that comes out.

    Args:
        module: as it was trained; it is copied, and stays as it is. What torch.compile and
            DataParallel wrap is taken out, and of PyG's autoencoders and DeepGraphInfomax that
            which gives embeddings.
        inputs: roles of ``forward``'s arguments whose names do not show them.
        width: columns of the features, where the module does not show them.
        init: the arguments that it was made with, which may contain the width.
        graph: node types and relations; None for a graph with one type of each.
        tables: node type ("" in a graph of one) -> the parameters, or `nn.Embedding`s, with a row
            for each of its nodes, which the program reads beside its features or in their place.
        table_ids: node type -> [rows] the id that each row of its tables is of, int64 or strings;
            without, row i is of the dense id i.
        edge_features: columns of the edges' features in a graph of one type, where the module
            does not show them.
        weighted: whether it was trained with weights of edges, in a graph of one type; they are
            required of jobs then, as are those of the relations that `graph` states.
        categories: node type ("" in a graph of one) -> column of its features -> how many
            categories it has, whole numbers from 0.
        edge_categories: relation -> the same of its edges' features.
        results: names of what ``forward`` returns, where it returns several tensors: of a tuple in
            its order, "-" for one to leave out; of a dict those to keep.
        decoder: what gives pairs of nodes scores: a method or part of the module, or a module.
        understood: filled step by step, so that it has what was known where this raises an error.

    Raises:
        ModelError: the module does what no program can express, or the proof fails; names the
            line of the user's code.
    """
    given = dict(locals())
    module = with_encoder(unwrapped(module))
    for part in (module, *([decoder] if isinstance(decoder, nn.Module) else [])):
        refuse_types(part)
    known = Understood() if understood is None else understood
    known.module, known.inputs, known.graph = module, inputs or {}, graph
    with quiet():
        known.tables = named = find_tables(module, tables or {})
        check_ids(named, table_ids or {})
        columns = edge_columns(module, inputs or {}, graph, edge_features)
        known.edge_features = bool(columns)
        known.subject = subject = replace(
            prepare(module, inputs or {}, graph, named, edge_features=bool(columns)),
            results=tuple(results),
        )
        if graph is not None:
            declared = with_features_of_categories(graph, categories, edge_categories)
            types = find_weighted(subject, with_tables(in_order(declared, module), named))
        else:
            bare = GraphTypes({"": 0}, edge_features=columns)
            bare = with_features_of_categories(bare, categories, edge_categories)
            types = find_types(subject, width, init or {}, bare)
        known.set_graph(types)
        check_columns(types)
        types = reached(module, types)

        def lower(random: RandomGraph) -> Lowered:
            return _lower(subject, random)

        try:
            known.lowered = lowered = lower(random_graph(types, NODES, SEED))
        except RowsBelow as found:
            return export_module(**(given | {"tables": below(named, found.names)}))
        check_read(module, named, types, lowered.read)
        stored = stored_tables(module, named, table_ids or {})
        kind = type(module).__name__
        scores = None if decoder is None else export_decoder(module, decoder, lowered.program)
        shown = {""} if weighted else set[str]()
        shown = shown if graph is None else {*(graph.weighted or ())}
        weights: dict[str, WeightsOf] = {
            of: "optional" if subject.weights_are_optional and of not in shown else "required"
            for of in lowered.program.weighted_relations
        }
        program = replace(lowered.program, decoder=scores, weights=weights)
        known.lowered = replace(lowered, program=program)
        files = folder_files(
            program,
            lowered.layers,
            kind,
            subject.library,
            stored,
            types.categories,
            types.edge_categories,
        )
        exported = parse_folder(files.program, files.weights, "the program", exact=True)
        known.proof = proof = prove(subject, exported.program, types, lower)
    explanation = explain(known)
    assert explanation is not None
    return Export(exported, files.with_proof(proof.to_json()), proof, explanation)


def export_file(
    target: str,
    storage: Storage,
    weights: str | None,
    out: str | None,
    *,
    init: Mapping[str, Any],
    inputs: Mapping[str, str],
    width: int | None,
    graph: str | None = None,
    tables: Mapping[str, str | Sequence[str]] | None = None,
    table_ids: Mapping[str, str] | None = None,
    edge_features: int | None = None,
    categories: Mapping[Any, Any] | None = None,
    edge_categories: Mapping[Any, Any] | None = None,
    sample: str | None = None,
    key: str = "",
    results: Sequence[str] = (),
    decoder: str | None = None,
    understood: Understood | None = None,
) -> Export:
    """Import ``FILE.py:NAME``, load the weights, export and write.

    Args:
        weights: a path or URI; None leaves parameters as NAME initialises them.
        out: None writes nothing.
        graph: node types and relations, as `named_types` reads them.
        tables, edge_features, results, decoder, understood: as for :func:`export_module`.
        categories, edge_categories: the same, by column alone in a graph of one type.
        sample: the path or URI of a file that shows what options leave open.
        table_ids: node type -> the path or URI of an npy file with the id of each row.
        key: where in the file of weights the state_dict is, dots between keys of nested dicts;
            "" for the only one.

    Raises:
        ModelError: as :func:`export_module`, or the file or the weights do not fit.
        StorageError: the weights cannot be read, or the folder not be written.
    """
    types = None if graph is None else named_types(graph, storage)
    module = build(target, init)
    if understood is not None:
        understood.module, understood.inputs, understood.graph = module, inputs, types
    if weights is None:
        refuse_lazy(module)
    else:
        load_weights(module, read_weights(storage, weights, key).tensors, weights)
    shown = Sample()
    if sample is not None:
        shown = read_sample_file(module, sample, storage, inputs, tables=bool(tables))
    used = shown.under(types, width, edge_features, categories, edge_categories)
    with nullcontext() if sample is None else used.in_errors():
        done = export_module(
            module,
            inputs=inputs,
            width=used.width,
            init=init,
            graph=used.graph,
            tables=tables,
            table_ids={of: read_table_ids(storage, uri) for of, uri in (table_ids or {}).items()},
            edge_features=used.edge_features,
            weighted=used.weighted,
            categories=used.categories,
            edge_categories=used.edge_categories,
            results=results,
            decoder=decoder,
            understood=understood,
        )
    done = done if sample is None else replace(done, sample=used)
    if out is not None:
        done.write(storage, out)
    return done


def _lower(subject: Subject, graph: RandomGraph) -> Lowered:
    """Record the module on a graph and write it as a program."""
    subject = subject.fresh()
    outputs = subject.record(graph)
    tensors = {name: tensor.detach() for name, tensor in subject.module.state_dict().items()}
    lowering = Lowering(
        module=subject.module,
        types=graph.types,
        emit=emit,
        b=ProgramBuilder({name: width for name, width in graph.types.nodes.items() if width}),
        weights=Weights(tensors, "the module", dtype=torch.float64),
        names=bound_names(subject.module),
        learned=frozenset(subject.tables),
    )
    return lowering.run(outputs, lower_function)
