"""docs/convolutions.md, from the layers that the tests compare with their libraries."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from torch import nn

from embertide.edge.check.alternatives import choices
from embertide.models.convs.hetero import Hetero
from embertide.models.kinds import KNOWN, KNOWN_TYPED, LAYERS, kinds_of
from embertide.models.layer import Layer, Library
from embertide.tracing.forward.replacements import BY_NUMBER, BY_RELATION
from tests.support.conv_cases import traced
from tests.support.convolution_cases import HeldLayer, held_layers
from tests.support.dgl_library import dgl
from tests.support.pyg import pyg
from tools.pages.model import NAMES, modules_of

INTRODUCTION = """\
# Convolutions

Which of the libraries' modules run, with which options, and as which steps. This page is written
from the tables of cases that the tests compare with the library's own module, in float64 and with
an error of at most 1e-9 of the largest value (1e-6 after a batch norm, which is folded): what it
lists is tested, and an option that no case has makes the tests fail. The cases' graphs have several
edges between two nodes, self-loops, isolated nodes and nodes without in-edges.

What each option means, the norms, activations and links that may follow any layer, and the
arguments that are refused are in [model.yaml](model.md).
"""
EXPORTED = """\
## In `embertide export`

Modules that are exported as they are ([export.md](export.md)). Those known as a whole become the
steps above; others become messages, lines of torch's operations on each edge; those for several
types take dicts, or types as numbers.

| library | as a whole | by what they do | type by type |
|---|---|---|---|"""
EVERY = set(Layer.model_fields) - {"bias"}
"""Options of every layer, which are tested apart."""


def page() -> str:
    """The whole page, of the layers that there are."""
    return page_of(list(held_layers()))


def page_of(layers: list[HeldLayer]) -> str:
    """The whole page."""
    lines = [INTRODUCTION]
    for library in LAYERS:
        kinds = kinds_of(library)
        lines.append(f"## {NAMES[library]}\n")
        lines.append("| module | `conv` | steps | tested with | edge weights | not supported |")
        lines.append("|---|---|---|---|---|---|")
        for conv, kind in kinds.items():
            tested = [one for one in layers if one.library == library and one.layer.conv == conv]
            lines.append(_row(library, conv, kind, tested))
        lines.append(f"\n{textwrap.fill(f'No kinds of layer: {_others(library)}.', 100)}\n")
    return "\n".join([*lines, EXPORTED, *_exported()])


def _exported() -> Iterator[str]:
    """How the convolutions of each library are exported."""
    packages: dict[Library, str] = {"dgl": "dgl", "pyg": "torch_geometric"}
    for library, package in packages.items():
        known = [*KNOWN[library], *KNOWN_TYPED[library]]
        by_messages = {"dgl": traced.DGL, "pyg": traced.PYG}[library]
        several = [name for one, name in (*BY_RELATION, *BY_NUMBER) if one == package]
        lists = [known, by_messages, [name for name in several if name not in known]]
        cells = [", ".join(f"`{name}`" for name in names) for names in lists]
        yield f"| {NAMES[library]} | {' | '.join(cells)} |"
    yield ""


def untested(layers: list[HeldLayer]) -> list[str]:
    """Options, and values of those that have few, that no case has."""
    missing = []
    for library in LAYERS:
        for conv, kind in kinds_of(library).items():
            tested = [one for one in layers if one.library == library and one.layer.conv == conv]
            given = {name for one in tested for name in one.given}
            for name in _options(kind):
                values = {str(getattr(one.layer, name)) for one in tested}
                known = choices(kind.model_fields[name].annotation)
                lacking = [str(value) for value in known if str(value) not in values]
                if lacking or name not in given:
                    missing.append(f"{library} {conv} {name} {', '.join(lacking)}".rstrip())
    return missing


def _others(library: Library) -> str:
    """The library's convolutions that are no kind of layer."""
    kinds = {name for kind in kinds_of(library).values() for name in modules_of(library, kind)}
    known = {name.rpartition(".")[2] for name in kinds}
    package = pyg.conv if library == "pyg" else dgl.nn.pytorch.conv
    names = sorted(
        name
        for name, value in vars(package).items()
        if isinstance(value, type) and issubclass(value, nn.Module) and name not in known
    )
    return ", ".join(f"`{name}`" for name in names if "Conv" in name)


def _row(library: Library, conv: str, kind: type[Layer], tested: list[HeldLayer]) -> str:
    modules = ", ".join(f"`{name.rpartition('.')[2]}`" for name in modules_of(library, kind))
    steps: dict[str, None] = {}
    for one in tested:
        steps |= dict.fromkeys(one.steps)
    cells = [
        modules or f"`{kind.module}`",
        f"`{conv}`",
        ", ".join(steps),
        "; ".join(_said(kind, name) for name in _options(kind)),
        _weights(kind, tested),
        "; ".join(_refused(kind)),
    ]
    return f"| {' | '.join(cells)} |"


def _options(kind: type[Layer]) -> list[str]:
    """The options of its own."""
    fixed = kind.fixed_fields()
    return [name for name in kind.model_fields if name not in EVERY and name not in fixed]


def _said(kind: type[Layer], name: str) -> str:
    values = choices(kind.model_fields[name].annotation)
    if not values or values == (True, False):
        return f"`{name}`"
    return f"`{name}`: " + ", ".join(f"`{value}`" for value in values)


def _weights(kind: type[Layer], tested: list[HeldLayer]) -> str:
    if not kind.reads_edges:
        return "reads no edges"
    if issubclass(kind, Hetero):
        return "as each convolution has it"
    if kind.weighted is None:
        return "no"
    assert any(one.weighted for one in tested), kind
    return "yes" if kind.weighted else "with `edge_weight: true`"


def _refused(kind: type[Layer]) -> Iterator[str]:
    for name, reasons in kind.refused.items():
        for why in dict.fromkeys(reasons.values()):
            values = ", ".join(f"`{value}`" for value, reason in reasons.items() if reason == why)
            yield f"`{name}`: {values} ({why})"
