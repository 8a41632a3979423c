"""``embertide diff``: two published versions side by side."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from embertide.cli.drawing import escaped, new_table, print_line
from embertide.cli.options import EndpointOption, JsonOption, OutputOption, job_and_rest, place_of
from embertide.cli.versions import named_version
from embertide.facts.telemetry.comparison import Comparison, TypeComparison
from embertide.facts.telemetry.format import human_share

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_QUANTILES = ("1%", "5%", "50%")


def diff(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[JOB.yaml] A B",
            help="The manifest, unless --output is given, then two versions as `embertide "
            "versions` lists them, the older one first; or current, or previous.",
            show_default=False,
        ),
    ],
    output: OutputOption = None,
    endpoint_url: EndpointOption = None,
    json_output: JsonOption = False,
) -> None:
    """Compare two published versions by the ids of their rows.

    Rows that are new, removed and changed; how far rows moved (cosine of a row with itself);
    how many of its nearest neighbours a row keeps, within a fixed sample; lengths, zero and
    duplicate vectors. Reads both versions once, a part at a time.

    [bold]Examples[/bold]

      embertide diff job.yaml previous current
      embertide diff --output s3://shop/out V1 V2
      embertide diff job.yaml previous current --json
    """
    job_path, names = job_and_rest(words, output, "A B")
    if len(names) != 2:
        raise typer.BadParameter(f"give two versions, not {len(names)}: {' '.join(names)}")
    place = place_of(job_path, output, endpoint_url)

    from embertide.io.compare.diff import compare_versions
    from embertide.io.storage.opening import open_storage

    storage = open_storage(place.storage)
    older, newer = (named_version(storage, place.uri, name) for name in names)
    comparison = compare_versions(storage, place.uri, older, newer)
    if json_output:
        from embertide.cli.progress_view import write_json

        write_json(sys.stdout, {"event": "diff", "version": newer, **comparison.to_json()})
        return
    from rich.console import Console

    draw(Console(), newer, comparison)


def draw(console: Console, version: str, comparison: Comparison) -> None:
    """The comparison of a version as tables: one for each node type, one of edges."""
    print_line(console, f"[bold]{version}[/] compared with {comparison.previous}")
    if not comparison.same_model:
        print_line(console, "computed with another model: cosines are not compared")
    for of_type in comparison.types:
        console.print(_type_table(of_type))
    if comparison.edges:
        console.print(_edge_table(comparison))


def _type_table(of_type: TypeComparison) -> Table:
    title = f"Rows of {escaped(of_type.name)}" if of_type.name else "Rows"
    table = new_table(title, [""], ["", "share"])
    rows = of_type.rows
    before = of_type.previous_rows or 0
    table.add_row("rows", f"{rows:,}", "")
    for name, count, whole in (
        ("new", of_type.new_rows, rows),
        ("removed", of_type.removed_rows, before),
        ("changed", of_type.changed_rows, rows),
        ("unchanged", of_type.unchanged_rows, rows),
        ("zero vectors", of_type.zero_rows, rows),
        ("duplicate vectors", of_type.duplicate_rows, rows),
    ):
        if count is not None:
            table.add_row(name, f"{count:,}", human_share(count, whole))
    for name, text in likeness(of_type):
        table.add_row(name, text, "")
    return table


def likeness(of_type: TypeComparison) -> list[tuple[str, str]]:
    """How alike the vectors of both versions are: what it is, and the number."""
    lines = [
        (f"cosine, {share} of rows at most", f"{cosine:.4f}")
        for share in _QUANTILES
        if (cosine := of_type.cosine(share)) is not None
    ]
    if of_type.overlap is not None:
        lines.append((f"neighbours kept, of {of_type.sample_rows:,} ids", f"{of_type.overlap:.1%}"))
    if of_type.residual is not None:
        lines.append(("not explained by a rotation", f"{of_type.residual:.2%}"))
    return lines


def _edge_table(comparison: Comparison) -> Table:
    table = new_table("Edges read", ["edge type"], ["rows", "before"])
    for edges in comparison.edges:
        before = "-" if edges.previous is None else f"{edges.previous:,}"
        table.add_row(escaped(edges.name), f"{edges.rows:,}", before)
    return table
