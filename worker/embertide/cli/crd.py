"""``embertide crd``: the custom resource definition, generated from the manifest's models."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def crd(
    schedules: Annotated[
        bool, typer.Option("--schedules", help="Print the definition of EmbeddingSchedule instead.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write to this file instead of stdout.", show_default=False
        ),
    ] = None,
) -> None:
    """Print the CustomResourceDefinition of EmbeddingJob.

    The Helm chart brings it along; this is for clusters without Helm, and for a look at every
    field, its bounds and its defaults.

    [bold]Examples[/bold]

      embertide crd | kubectl apply --server-side -f -
      embertide crd --output embeddingjobs.yaml
      embertide crd --schedules --output schedules.yaml
    """
    from embertide.spec.crd import crd_yaml, schedule_crd

    text = crd_yaml(schedule_crd() if schedules else None)
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"--output {output} cannot be written: {error.strerror}") from None
