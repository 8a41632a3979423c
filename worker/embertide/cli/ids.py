"""Ids of nodes on the command line: ``--ids`` and ``--ids-from``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from embertide.errors import InputError

if TYPE_CHECKING:
    from embertide.spec.manifest import EmbeddingJob

IdsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ID,ID",
        help="Ids as in the input, separated by commas, such as 17,-5; may be given several times.",
        show_default=False,
    ),
]
IdsFromOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A file of ids: parquet, csv and tsv with a column id, npy, or text with an id a "
        "line.",
        show_default=False,
    ),
]
_FORMATS = {".parquet": "parquet", ".npy": "npy", ".csv": "csv", ".tsv": "tsv"}
_COMPRESSED = (".gz", ".zst")


def split_ids(texts: list[str]) -> list[str]:
    """The ids of all options."""
    return [item for text in texts for item in text.split(",") if item]


def typed_ids(job: EmbeddingJob, node_type: str | None, ids: list[str]) -> list[int | str]:
    """Ids as the nodes' are: numbers, or the texts themselves.

    Raises:
        InputError: one is no number, but those of the nodes are.
    """
    from embertide.spec.whole_numbers import whole_number

    nodes = job.spec.input.nodes
    of = [node for node in nodes if node_type in (None, node.name)] or nodes
    if of[0].ids == "string":
        return list(ids)
    numbers = list[int | str]()
    for item in ids:
        number = whole_number(item)
        if number is None:
            raise InputError(
                f"--ids has {item!r}, but ids of {of[0].name!r} are whole numbers of 64 bits"
            )
        numbers.append(number)
    return numbers


def chosen_nodes(
    job: EmbeddingJob, ids: list[str] | None, ids_from: Path | None, node_type: str | None
) -> EmbeddingJob:
    """The job for the nodes of ``--ids`` or ``--ids-from``; the job itself without these.

    Raises:
        InputError, ManifestError: see :func:`with_targets`.
    """
    if ids or ids_from is not None:
        return with_targets(job, ids or [], ids_from, node_type)
    if node_type is not None:
        raise typer.BadParameter("--node-type goes with --ids or --ids-from")
    return job


def with_targets(
    job: EmbeddingJob, ids: list[str], ids_from: Path | None, node_type: str | None
) -> EmbeddingJob:
    """The job for some nodes alone, in place of the targets that it has.

    Raises:
        InputError: the file is not there.
        ManifestError: the ids do not fit the job, or it has what targets cannot be combined with.
    """
    import json

    from embertide.spec.manifest import load_manifest

    if ids and ids_from is not None:
        raise typer.BadParameter("give either --ids or --ids-from")
    targets: dict[str, Any] = {}
    if ids_from is not None:
        targets["table"] = _table(ids_from)
    else:
        published = job.spec.output.node_types
        kind = node_type or (published[0] if published else None)
        targets["ids"] = typed_ids(job, kind, split_ids(ids))
    if node_type is not None:
        targets["nodeType"] = node_type
    data = job.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"status"})
    data["spec"].setdefault("inference", {})["targets"] = targets
    return load_manifest(json.dumps(data))


def _table(path: Path) -> dict[str, Any]:
    """A file of ids as a job's input: by its name, or text with an id a line."""
    if not path.exists():
        raise InputError(f"--ids-from: {path} cannot be read: there is no such file")
    table: dict[str, Any] = {"uri": path.absolute().as_uri()}
    # Text may be compressed; where the rest is not, its reader refuses it.
    end = Path(path.stem).suffix if path.suffix in _COMPRESSED else path.suffix
    if end in _FORMATS:
        return table | {"format": _FORMATS[end]}
    # A character that no id has, so that a line is an id, whatever is in it.
    plain = {"quote": ""}
    return table | {"format": "csv", "header": False, "delimiter": "\x1f", "dialect": plain}


_NEGATIVE = re.compile(r"-[0-9]+", re.ASCII)


class TakesNegatives(TyperCommand):
    """A command that takes ``-5`` for an argument, as no option has a digit for its name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments that are left, as the class of typer gives them."""
        if any(map(_NEGATIVE.fullmatch, args)):
            ctx.ignore_unknown_options = True
        left: list[str] = super().parse_args(ctx, args)
        return left
