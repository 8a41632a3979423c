"""From embeddings to a published version: compare with references and the current version, write
parts, judge, publish."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from embertide.pipeline.prepare import Prepared
from embertide.planning.model_tables import UNREAD
from embertide.planning.order import WorkOrder
from embertide.spec.version_names import version_uri
from embertide.stages.compare import compare_rows
from embertide.stages.gate import judge
from embertide.stages.publish import Rows, WrittenType, publish_version, write_parts
from embertide.stages.verify import SKIPPED, allowed_error, hold_against, row_error
from embertide.telemetry.clock import Clock
from embertide.telemetry.comparison import Comparison
from embertide.telemetry.report import RunFacts
from embertide.versions.catalog import VersionInfo


@dataclass(frozen=True, kw_only=True)
class Published:
    """What a rank knows of the version.

    Attributes:
        version, comparison: on rank 0; None on the others.
        facts: of the run, with what rows of another type than float32 made of the embeddings.
        warnings: sentences for the run's user.
    """

    version: VersionInfo | None
    comparison: Comparison | None
    facts: RunFacts
    warnings: list[str]


def publish(
    prepared: Prepared, order: WorkOrder, embeddings: dict[str, torch.Tensor], clock: Clock
) -> Published:
    """Publish the embeddings of all node types as one version. Collective: every rank must call.

    Raises:
        EmbertideError: embeddings differ from a reference, or the version cannot be written.
    """
    ctx, row_type = prepared.ctx, prepared.ctx.job.spec.inference.rows
    program = prepared.plan.program
    with clock.stage("publish"):
        compared = _compare(prepared, embeddings)
        facts = replace(prepared.facts, row_error=row_error(compared.values(), row_type))
        own = [_own_rows(prepared, name, values) for name, values in embeddings.items()]
        comparison = compare_rows(ctx, program.digest, ctx.graph_facts.read["edges"], own)
        parts = write_parts(ctx, version_uri(ctx.job.spec.output.uri, order.version), own)
        version, warnings = None, [*prepared.warnings, *_not_read(prepared)]
        if comparison is not None:
            verdict = judge(ctx, prepared.inputs, comparison, ctx.graph_facts.omissions, compared)
            warnings += [*verdict.warnings, *([comparison.why] if comparison.why else [])]
            counts = [prepared.graph.located[rows.node.name].ranges.nodes for rows in own]
            written = [
                WrittenType(rows.node, count, rows.width, of_type, compared.get(name))
                for name, rows, count, of_type in zip(embeddings, own, counts, parts, strict=True)
            ]
            trust = {"comparison": comparison.to_json(), "gate": verdict.to_json()}
            version = publish_version(ctx, order, program, written, trust, verdict.held)
    return Published(version=version, comparison=comparison, facts=facts, warnings=warnings)


def _compare(prepared: Prepared, embeddings: dict[str, torch.Tensor]) -> dict[str, dict[str, Any]]:
    """Compare with the references that there are. Collective: every rank must call."""
    ctx, facts = prepared.ctx, prepared.facts
    row_type = ctx.job.spec.inference.rows
    tolerance = allowed_error(prepared.reference_tolerance, row_type, facts.graph_layers)
    located = prepared.graph.located
    return {
        name: hold_against(
            ctx, expected, located[prepared.names[name]].ranges, embeddings[name], tolerance
        )
        for name, expected in prepared.expected.items()
    }


def _own_rows(prepared: Prepared, name: str, embeddings: torch.Tensor) -> Rows:
    """Our rows of a node type, as they are written: among several types, in its own folder."""
    given, of_type = prepared.ctx.job.spec.input, prepared.names[name]
    folder = of_type if len(given.nodes) > 1 else ""
    return Rows(given.node(of_type), folder, prepared.graph.located[of_type].names, embeddings)


def _not_read(prepared: Prepared) -> list[str]:
    """Warnings of references that were not compared, and of tables that features replace."""
    inputs = prepared.inputs
    references = [of_type.reference[:1] for of_type in inputs.by_nodes.values()]
    skipped = [] if prepared.expected else [split.uri for splits in references for split in splits]
    return [
        *(SKIPPED.format(uri=uri) for uri in skipped),
        *(UNREAD.format(node_type=name, uri=table) for name, table in inputs.unread_tables.items()),
    ]
