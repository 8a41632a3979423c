"""Negative numbers among the arguments: ids, not options."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperCommand

_NEGATIVE = re.compile(r"-[0-9]+", re.ASCII)


class TakesNegatives(TyperCommand):
    """A command that takes ``-5`` for an argument, as no option has a digit for its name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments that are left, as the class of typer gives them."""
        if any(map(_NEGATIVE.fullmatch, args)):
            ctx.ignore_unknown_options = True
        left: list[str] = super().parse_args(ctx, args)
        return left
