"""Docstrings as help texts, so that the words stand beside the code they describe."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from embertide.cli.errors import exit_codes


def help_of(command: Callable[..., object], *more: str) -> str:
    """The docstring, and ``more`` paragraphs, each joined to one line for the terminal to wrap.

    Paragraphs that are indented are examples and keep their lines.
    """
    blocks = [*inspect.cleandoc(command.__doc__ or "").split("\n\n"), *more]
    return "\n\n".join(
        _keep_indent(block) if block.startswith("  ") else " ".join(block.splitlines())
        for block in blocks
    )


def _keep_indent(block: str) -> str:
    # Typer takes away an indentation that all lines have; markup in front hides it.
    return "\n".join(f"[none]{line}[/none]" for line in block.splitlines())


def exit_code_help() -> list[str]:
    """The exit codes, as paragraphs for `help_of`."""
    return [
        "[bold]Exit codes[/bold]",
        "\n".join(f"  {code:>3}  {meaning}" for code, meaning in exit_codes()),
        "Errors go to stderr, with --json also to stdout. EMBERTIDE_DEBUG=1 shows tracebacks.",
    ]
