"""What of a model a job publishes, where it runs, and which result a command asks for."""

from __future__ import annotations

from collections.abc import Iterable

from embertide.engine.planning.matching import match_types
from embertide.errors import ModelError
from embertide.program.plans.plan import Target
from embertide.program.steps import Program
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.result_names import UNNAMED, name_of, names_in, node_type_of, result_key


def published(job: EmbeddingJob, program: Program) -> Program:
    """The program that gives what the job publishes, without the steps that this does not need.

    Raises:
        ModelError: ``output.nodeTypes`` has a type that the model gives no embeddings of, or
            ``output.results`` a name that it gives nothing by; or ``inference.targets`` may be
            nodes of several types.
    """
    types, names = job.spec.output.node_types, job.spec.output.results
    targets = job.spec.inference.targets
    if targets is not None and targets.node_type is not None:
        types = [targets.node_type]
    results = program.results if names is None else _named(job, program, names)
    if types is not None:
        results = _of_types(job, program, results, types)
    if targets is not None:
        _refuse_several(job, program, results)
    return program if types is None and names is None else program.only(results)


def _refuse_several(job: EmbeddingJob, program: Program, results: dict[str, str]) -> None:
    """Refuse targets of which it is not known which type's nodes they are."""
    names = match_types(job, program)
    types = list(dict.fromkeys(names[node_type_of(key)] for key in results))
    if len(types) > 1:
        raise ModelError(
            "spec.inference.targets is of one node type, but the job publishes embeddings of"
            f" {', '.join(types)}; name one of these in spec.inference.targets.nodeType"
        )


def _of_types(
    job: EmbeddingJob, program: Program, results: dict[str, str], wanted: list[str]
) -> dict[str, str]:
    """The results of some node types, in the order of the job."""
    manifest_names = match_types(job, program)
    types = {manifest_names[node_type_of(key)]: node_type_of(key) for key in results}
    unknown = [name for name in wanted if name not in types]
    if unknown:
        targets = job.spec.inference.targets
        named = targets is not None and targets.node_type == unknown[0]
        field = "spec.inference.targets.nodeType is" if named else "spec.output.nodeTypes has"
        raise ModelError(
            f"{field} {unknown[0]!r}, but the model {job.spec.model.location} gives"
            f" embeddings of {', '.join(types)}; name some of these, or leave it out for all"
        )
    return {
        key: tensor
        for name in wanted
        for key, tensor in results.items()
        if node_type_of(key) == types[name]
    }


def _named(job: EmbeddingJob, program: Program, names: list[str]) -> dict[str, str]:
    """The results of some names, in the order of the job."""
    available = available_results(program)
    there = names_in(available)
    unknown = [name for name in names if name not in there]
    if unknown:
        raise ModelError(
            f"spec.output.results has {unknown[0]!r}, but the model {job.spec.model.location} gives"
            f" {', '.join(there)}; name some of these, or leave it out"
        )
    return {
        key: tensor for name in names for key, tensor in available.items() if name_of(key) == name
    }


def available_results(program: Program) -> dict[str, str]:
    """Key -> tensor of all that a job may publish by a name of ``output.results``.

    Beside the model's own results these are what its layers give, in a graph of one node type.
    A result of the same name goes first.
    """
    own = {
        result_key(node_type_of(key), name_of(key) or UNNAMED): tensor
        for key, tensor in program.results.items()
    }
    if set(program.types.values()) != {""}:
        return own
    files = set(program.inputs.values())
    layers = {
        result_key("", f"layer{number}"): tensor
        for number, tensor in enumerate(program.outputs, start=1)
        if tensor not in files
    }
    return layers | own


def chosen_result(
    job: EmbeddingJob, program: Program, node_type: str | None, result: str | None = None
) -> str:
    """The key of one of the model's results.

    Args:
        node_type: the manifest's name; may be left out where there is one alone.
        result: its name; likewise.

    Raises:
        ModelError: no such type or result, or none given where there are several; lists them.
    """
    names, model = match_types(job, program), job.spec.model.location
    types = {names[node_type_of(key)]: node_type_of(key) for key in program.results}
    if node_type is None and len(types) == 1:
        node_type = next(iter(types))
    if node_type is None or node_type not in types:
        problem = "several" if node_type is None else f"none of type {node_type!r}"
        raise ModelError(
            f"the model {model} gives embeddings of the node types {', '.join(types)},"
            f" {problem}; choose one with --node-type"
        )
    of_type = [key for key in program.results if node_type_of(key) == types[node_type]]
    return _only_result(of_type, result, model)


def _only_result(keys: Iterable[str], result: str | None, model: str) -> str:
    """The key of a name; without one the only key."""
    by_name = {name_of(key) or UNNAMED: key for key in keys}
    if result is None and len(by_name) == 1:
        return next(iter(by_name.values()))
    if result is None or result not in by_name:
        problem = "several" if result is None else f"none of the name {result!r}"
        raise ModelError(
            f"the model {model} gives the results {', '.join(by_name)}, {problem}; choose one with"
            " --result"
        )
    return by_name[result]


def target_of_job(
    job: EmbeddingJob,
    grid: GridShape,
    *,
    in_place: bool = False,
    panel: int = 0,
    spills_graph: bool = False,
) -> Target:
    """The job's program on a grid.

    Args:
        in_place, panel, spills_graph: see :class:`Target`.
    """
    return Target(
        grid=grid,
        in_place=in_place,
        sampled=job.spec.inference.fanout != "full",
        panel=panel,
        spills_graph=spills_graph,
    )
