"""docs/cli.md and docs/cli/: every command with its options, as typer describes them."""

from __future__ import annotations

import functools
import html
import os
import re
import subprocess
import sys
from collections import Counter

_WORDS = ("-m", "typer", "embertide.cli.app", "utils", "docs", "--name", "embertide")
PAGES = {
    "cli/run.md": ("runs", "run plan embed layers synth"),
    "cli/models.md": ("models", "export show check"),
    "cli/versions.md": ("versions", "versions report diff rollback release discard neighbors"),
    "cli/indexes.md": ("indexes", "convert push"),
    "cli/kubernetes.md": ("Kubernetes", "submit logs crd"),
}
"""Page -> what its commands are about, and these; those of none are on the first."""
_SEVERAL = 2
"""An option that as many commands have is described once."""
_OPTION = re.compile(r"^\* `(-[^`]*)`.*\n", re.MULTILINE)


def page() -> str:
    """The page with what all commands have, and where each is."""
    head, commands = _commands()
    head, _, options = head.partition("**Options**:\n")
    lines = [
        "# Command line\n",
        "Generated from the commands themselves; each shows the same with `--help`.\n",
        re.sub(r"\*\*(.*)\*\*\n", r"## \1\n", head.partition("**Usage**")[0].strip()),
        "\n## Commands\n",
    ]
    for name, (about, _) in PAGES.items():
        lines.append(f"[About {about}]({name}):\n")
        for command in _of_page(name):
            first = re.split(r"(?<=\.)\s", commands[command].strip())[0]
            lines.append(f"- [`{command}`]({name}#embertide-{command}): {first}")
        lines.append("")
    lines += ["## Options of several commands\n", *sorted(_common()), ""]
    lines += ["Without a command:\n", options.partition("**Commands**")[0].strip()]
    return "\n".join(lines) + "\n"


def group(name: str) -> str:
    """One of `PAGES`."""
    parts = [f"# Commands about {PAGES[name][0]}\n"]
    for command in _of_page(name):
        text = _commands()[1][command]
        known = [match for match in _OPTION.finditer(text) if match[0].strip() in _common()]
        for match in known:
            text = text.replace(match[0], "")
        names = ", ".join(f"`{match[1].split()[0].rstrip(',')}`" for match in known)
        text = re.sub(r"\*\*Usage\*\*:\n\n```console\n\$ (.*)\n```", r"`\1`", text)
        text = re.sub(r"\*\*Arguments\*\*:\n\n\* `JOB.yaml <path>`: The .*\n(?!\*)", "", text)
        text = text.strip().removesuffix("**Options**:").strip()
        parts.append(f"## `embertide {command}`\n\n{text}\n")
        if names:
            parts.append(f"And [options of several commands](../cli.md#{_ANCHOR}): {names}.\n")
    return "\n".join(parts)


_ANCHOR = "options-of-several-commands"


def _of_page(name: str) -> list[str]:
    there = _commands()[1]
    first, *_ = PAGES
    others = {
        command for page, (_, names) in PAGES.items() if page != name for command in names.split()
    }
    mine = PAGES[name][1].split()
    rest = [command for command in there if command not in others | set(mine)]
    return [*(command for command in mine if command in there), *(rest if name == first else ())]


@functools.cache
def _common() -> frozenset[str]:
    """Options that several commands describe in the same words."""
    texts = _commands()[1].values()
    counts = Counter(match[0].strip() for text in texts for match in _OPTION.finditer(text))
    return frozenset(option for option, count in counts.items() if count >= _SEVERAL)


@functools.cache
def _commands() -> tuple[str, dict[str, str]]:
    """What is before the first command, and each one's text."""
    env = os.environ | {"NO_COLOR": "1", "COLUMNS": "100"}
    run = subprocess.run(
        [sys.executable, *_WORDS], env=env, capture_output=True, text=True, check=True
    )
    text = re.sub(r"<span[^>]*>(.*?)</span>", r"**\1**", run.stdout)
    text = html.unescape(text).partition("\n")[2]
    text = re.sub(r"^  (?! )", "    ", text, flags=re.MULTILINE)  # Examples are code.
    text = re.sub(r"^\* `--help`.*\n", "", text, flags=re.MULTILINE)
    head, *parts = re.sub(r"\n{3,}", "\n\n", text).split("\n## `embertide ")
    return head, {name: rest for name, _, rest in (part.partition("`\n") for part in parts)}
