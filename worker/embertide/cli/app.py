"""The commands.

Only the words are here: every command imports what it needs when it runs, so that `--help`
answers at once, also where torch is not installed.
"""

from __future__ import annotations

from typing import Annotated

import typer

from embertide._version import __version__
from embertide.cli.check import check
from embertide.cli.comparing import diff
from embertide.cli.convert import convert
from embertide.cli.crd import crd
from embertide.cli.embed import embed
from embertide.cli.export import export
from embertide.cli.held import discard, release
from embertide.cli.help import exit_code_help, help_of
from embertide.cli.ids import TakesNegatives
from embertide.cli.init import init
from embertide.cli.layers import layers
from embertide.cli.logs import logs
from embertide.cli.neighbors import neighbors
from embertide.cli.plan import plan
from embertide.cli.push import push
from embertide.cli.report import report
from embertide.cli.run import run
from embertide.cli.show import show
from embertide.cli.submit import submit
from embertide.cli.synth import synth
from embertide.cli.versions import rollback, versions

app = typer.Typer(
    name="embertide",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"embertide {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Keep graph embeddings fresh: exact, distributed inference for all nodes of a graph.

    A job is described by a manifest (EmbeddingJob): where the edges, the features and the
    trained model lie, and where the embeddings go. The same manifest runs here and on
    Kubernetes.

    [bold]Start here[/bold]

      embertide init --fastrp E.parquet    # edges alone
      embertide export models.py:Net ...   # your model
      embertide plan job.yaml              # what it needs
      embertide run job.yaml --grid 2x2    # publish a version
      embertide check job.yaml --against F # is it your model?
      embertide versions job.yaml          # what is published
      embertide report job.yaml --open     # where time went
      embertide neighbors job.yaml ID      # look at it
      embertide embed job.yaml --ids 17,42 # some nodes only
      embertide rollback job.yaml previous # go back
      embertide diff job.yaml previous current
      embertide release job.yaml           # a held version
      embertide convert job.yaml D --for I # its import files
      embertide push job.yaml --to URL     # into an index
      embertide submit job.yaml --at now   # on Kubernetes
      embertide logs products              # why it failed
    """


app.callback(help=help_of(_root, *exit_code_help()))(_root)
_COMMANDS = (
    *(run, plan, check, versions, report, diff, rollback, release, discard),
    *(neighbors, convert, push, embed, layers, export, show, submit, logs, synth, init, crd),
)
for _command in _COMMANDS:
    app.command(help=help_of(_command), cls=TakesNegatives)(_command)
