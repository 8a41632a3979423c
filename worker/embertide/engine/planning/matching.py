"""A job compared with its model: node types, relations, widths, the grid, and what is left out."""

from __future__ import annotations

from collections.abc import Iterable

from embertide.engine.planning.inputs import Inputs
from embertide.errors import InputError, ModelError
from embertide.facts.telemetry.omissions import ONE_LOOP_COUNTS, FilledNodes, Omissions
from embertide.grid import check_fits
from embertide.io.storage.protocol import Storage
from embertide.models.builtin import NodeColumns, builtin_model
from embertide.models.read import ExportedModel, Model, read_files
from embertide.program.plans.plan import Target
from embertide.program.steps import Program, WeightsOf
from embertide.spec.edges import EdgeInput
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.relations import Relation
from embertide.spec.result_names import UNNAMED, name_of, names_in, node_type_of, result_key


def check_model(
    job: EmbeddingJob, inputs: Inputs, program: Program, grid: GridShape, nodes: dict[str, int]
) -> dict[str, str]:
    """Refuse a model that does not fit the graph, the features, the fanout or the grid.

    Args:
        nodes: node type -> how many there are.

    Returns:
        The model's name of each node type -> the manifest's; they differ for a model of one type,
        which does not name it.

    Raises:
        ModelError: a node type or relation that is not there, another width of features, of nodes
            or of edges, edges without the weights that the model reads, or another number of layers
            than fanouts.
        InputError: a node type that is needed has no nodes.
        GridError: more workers than nodes, or than a tensor of the model has columns.
    """
    model = job.spec.model.location
    names = match_types(job, program)
    for node_type, tensor in program.inputs.items():
        _check_features(job, inputs, names[node_type], program.widths[tensor])
    for relation, columns in program.edge_columns().items():
        _check_edge_features(job, inputs, relation, columns)
    if without := _without_weights(job, program, "required"):
        raise ModelError(
            f"the model {model} reads the weight of each edge, but {_listed(without)} no column"
            f" for it; {_FOR_WEIGHTS}"
        )
    for node in narrow(job, program).spec.input.nodes:
        if not nodes[node.name]:
            raise InputError(
                f"node type {node.name!r} has no nodes: {node.listed_in} has no rows; write them,"
                " or use a model without this type"
            )
    fanout = job.spec.inference.fanout
    if fanout != "full" and len(fanout) != program.layers:
        raise ModelError(
            f"spec.inference.fanout is {fanout}, which has {len(fanout)} entries, but the model"
            f" {model} has {program.layers} layers that read edges; give one number for each layer"
            " of these, or full"
        )
    check_fits(grid, max(nodes.values()), program.sliced_widths)
    return names


def match_types(job: EmbeddingJob, program: Program) -> dict[str, str]:
    """The model's name of each node type -> the manifest's.

    Raises:
        ModelError: the model knows a node type or relation that the manifest has not, or does not
            name its one type where the manifest has several.
    """
    data, model = job.spec.input, job.spec.model.location
    there = [node.name for node in data.nodes]
    wanted = list(dict.fromkeys(program.types.values()))
    if wanted == [""]:
        if len(there) > 1 or len(data.relations) > 1:
            raise ModelError(
                f"{model} is a model of one node type and one edge type, but spec.input has the"
                f" node types {', '.join(there)} and the edge types"
                f" {', '.join(map(str, data.relations))}; leave out what the model does not read"
            )
        return {"": there[0]}
    unknown = [name for name in wanted if name not in there]
    if unknown:
        raise ModelError(
            f"the model {model} has a node type {unknown[0]!r}, but spec.input.nodes has"
            f" {', '.join(there)}; name the node types as the model does"
        )
    relations = [str(relation) for relation in data.relations]
    unknown = [name for name in program.relations if name not in relations]
    if unknown:
        raise ModelError(
            f"the model {model} reads the relation {unknown[0]}, but spec.input.edges has"
            f" {', '.join(relations)}; name source type, edge type and destination type as the"
            " model does, or add the edge type (reverse adds one)"
        )
    return {name: name for name in wanted}


def _check_features(job: EmbeddingJob, inputs: Inputs, name: str, width: int) -> None:
    """Refuse features that are not there, or of another width than the model takes."""
    features, model = job.spec.input.node(name).features, job.spec.model.location
    if features is None:
        raise ModelError(
            f"the model {model} reads features of node type {name!r}, which has none in spec.input;"
            " give it features"
        )
    columns, own = inputs.by_nodes[name].feature_width, inputs.by_nodes[name].table_width
    if columns + own != width:
        of = f" for node type {name!r}" if len(job.spec.input.nodes) > 1 else ""
        beside = f" beside {own} from its tables" if own else ""
        raise ModelError(
            f"{features.location}: the features have {columns} columns, but the model {model} takes"
            f" {width - own}{beside}{of}; give the features or the model that belong together"
        )


def _check_edge_features(job: EmbeddingJob, inputs: Inputs, relation: str, columns: int) -> None:
    """Refuse features of edges that are not there, or too many or too few.

    Args:
        relation: as the model names it; "" for the only one.
    """
    model, edges = job.spec.model.location, job.spec.input.edges
    of = [edge for edge in edges if not relation or relation in map(str, edge.relations)]
    edge, named = of[0], f" of {relation}" if relation else ""
    if edge.features is None:
        raise ModelError(
            f"the model {model} reads {columns} features of each edge{named}, but edge type"
            f" {edge.name!r} in spec.input.edges has none; name them in its features"
        )
    there = inputs.edge_features[str(edge.relation)]
    if there != columns:
        raise ModelError(
            f"{edge.location}: each edge{named} has {there} feature{'' if there == 1 else 's'}, but"
            f" the model {model} takes {columns}; give the features or the model that belong"
            " together"
        )


_FOR_WEIGHTS = "add weight: COLUMN to its columns, or weights: ones if each edge counts 1"


def _without_weights(job: EmbeddingJob, program: Program, how: WeightsOf) -> dict[str, str]:
    """The manifest's field -> relation, of edges that have no weights, though steps read them.

    Args:
        how: the model's word on their weights.
    """
    read = match_relations(job, program)
    wanted = {str(read[of]) for of in program.weighted_relations if program.weights.get(of) == how}
    return {
        f"spec.input.edges[{at}]": relation
        for at, edge in enumerate(job.spec.input.edges)
        if edge.columns.weight is None and edge.weights is None
        for relation in map(str, edge.relations)
        if relation in wanted
    }


def _listed(edges: dict[str, str]) -> str:
    """Fields and relations, with their verb."""
    names = " and ".join(f"{field} ({relation})" for field, relation in edges.items())
    return f"{names} {'names' if len(edges) == 1 else 'name'}"


def weight_warnings(job: EmbeddingJob, program: Program) -> list[str]:
    """Where the job has edge weights and the model does not read them, or the other way round.

    Call it when :func:`check_model` has found no problem.
    """
    model, read = job.spec.model.location, match_relations(job, program)
    weighted = {str(read[of]) for of in program.weighted_relations}
    featured = {str(read[of]) for of in program.edge_columns()}
    warnings = []
    if without := _without_weights(job, program, "optional"):
        warnings.append(
            f"the model {model} reads the weight of each edge where edges have some, and"
            f" {_listed(without)} no column for it, so that each counts 1; {_FOR_WEIGHTS}"
        )
    for at, edge in enumerate(job.spec.input.edges):
        relations = {str(relation) for relation in edge.relations} & set(map(str, read.values()))
        # Of parallel edges the heaviest stays, which has features of its own.
        chooses = edge.duplicates == "remove" or edge.self_loops == "addRemaining"
        if (
            edge.columns.weight is not None
            and relations
            and not relations & weighted
            and not (chooses and relations & featured)
        ):
            warnings.append(
                f"the model {model} does not read the weight of edges, so"
                f" spec.input.edges[{at}].columns.weight ({edge.columns.weight}, of"
                f" {edge.relation}) changes nothing; leave it out, or check the model"
            )
    return warnings


def match_relations(job: EmbeddingJob, program: Program) -> dict[str, Relation]:
    """The relations that the model reads, by its names, in the order of the manifest.

    Call it when :func:`match_types` has found all of them.
    """
    relations = job.spec.input.relations
    if "" in program.types.values():
        return {"": relations[0]}
    named = {str(relation): relation for relation in relations}
    return {name: relation for name, relation in named.items() if name in program.relations}


def narrow(job: EmbeddingJob, program: Program) -> EmbeddingJob:
    """The job with those node types and edge types alone that its model reads or embeds.

    Of an edge type both relations stay where the model reads its reverse, and features where it
    reads those of either.

    Raises:
        ModelError: as :func:`match_types`.
    """
    names = set(match_types(job, program).values())
    named = match_relations(job, program)
    wanted = set(named.values())
    featured = {named[name] for name in program.edge_columns()}
    for relation in wanted:
        names |= {relation.source, relation.destination}
    data = job.spec.input
    edges = [_only(edge, wanted, featured) for edge in data.edges]
    kept = {
        "nodes": [node for node in data.nodes if node.name in names],
        "edges": [edge for edge in edges if wanted.intersection(edge.relations)],
    }
    spec = job.spec.model_copy(update={"input": data.model_copy(update=kept)})
    return job.model_copy(update={"spec": spec})


def _only(edge: EdgeInput, wanted: set[Relation], featured: set[Relation]) -> EdgeInput:
    """The edge type, with its reverse and its features only where these are wanted."""
    left: dict[str, None] = {}
    if not wanted.intersection(edge.relations[1:]):
        left["reverse"] = None
    if not featured.intersection(edge.relations):
        left["features"] = None
    return edge.model_copy(update=left)


def unread(job: EmbeddingJob, program: Program) -> list[str]:
    """What of the manifest no run of the model needs, a line each."""
    data, kept = job.spec.input, narrow(job, program).spec.input
    left = [f"node type {n.name}" for n in data.nodes if n not in kept.nodes]
    there = [edge.relation for edge in kept.edges]
    left += [f"edge type {e.relation}" for e in data.edges if e.relation not in there]
    bare = [edge.relation for edge in kept.edges if edge.features is None]
    left += [
        f"a feature of edge type {edge.relation}"
        for edge in data.edges
        if edge.features is not None and edge.relation in bare
    ]
    return [f"nothing needs {what}, so it is not read" for what in left]


def read_job_model(storage: Storage, job: EmbeddingJob, inputs: Inputs) -> Model:
    """Read the files of the job's model, or make the program of a built-in one.

    Raises:
        ObjectMissing: there is neither ``program.yaml`` nor ``model.yaml``, or no file that it
            names.
        ModelError: with every problem of the text, or where the weights cannot be read; or the
            built-in model does not fit the graph.
    """
    model, data = job.spec.model, job.spec.input
    if model.uri is not None:
        return read_files(storage, model.uri)
    columns = {
        node.name if data.several else "": NodeColumns(
            0 if schema is None else schema.stored,
            schema.drawn.columns if schema is not None and schema.drawn is not None else 0,
        )
        for node in data.nodes
        for schema in (inputs.by_nodes[node.name].schema,)
    }
    return ExportedModel(builtin_model(model, columns, data.relations))


def planned_omissions(job: EmbeddingJob, inputs: Inputs) -> Omissions:
    """What of a run is missing, and allowed to be: empty relations, days, rows of tables.

    Args:
        job: with those inputs alone that are read.
    """
    inputs_of_job = job.spec.input
    empty = {
        str(edge.relation): edge.location
        for edge in inputs_of_job.edges
        if str(edge.relation) in inputs.absent
    }
    read = {item.location for _, item in inputs_of_job.object_inputs}
    days = {where: days for where, days in inputs.missing_days.items() if where in read}
    return Omissions([], empty, days, _filled(job, inputs))


def _filled(job: EmbeddingJob, inputs: Inputs) -> list[FilledNodes]:
    """The node types with nodes that the model's table has no rows of."""
    return [
        FilledNodes(node.name, of_type.new_rows, of_type.feature_rows, node.missing)
        for node in job.spec.input.nodes
        if (of_type := inputs.by_nodes[node.name]).new_rows
    ]


def plan_notes(job: EmbeddingJob, program: Program, inputs: Inputs) -> list[str]:
    """What a run will leave out, and what it may; a line each."""
    job, read = narrow(job, program), match_relations(job, program)
    by_steps = {read[name] for name in program.one_loop_relations}
    may = [
        f"edges of {edge.relation} whose end is not among the nodes are dropped, and the run fails"
        f" where they are more ({edge.unknown_nodes.text})"
        for edge in job.spec.input.edges
        if edge.unknown_nodes is not None and edge.unknown_nodes.action == "drop"
    ]
    may += [
        f"where a node has several self-loops of different weight in {edge.relation},"
        f" {ONE_LOOP_COUNTS} (the run counts them)"
        for edge in job.spec.input.edges
        if edge.duplicates == "keep"
        and not edge.removes_loops
        and (
            (edge.columns.weight is not None and by_steps.intersection(edge.relations))
            or (edge.self_loops == "addRemaining" and (edge.columns.weight or edge.features))
        )
    ]
    return [*planned_omissions(job, inputs).sentences, *may]


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
