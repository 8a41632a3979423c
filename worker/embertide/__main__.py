"""``python -m embertide``."""

from embertide.cli import command

command()
