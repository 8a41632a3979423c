"""docs/program.md: what a program is, every kind of step, every operation of a line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from textwrap import fill
from typing import Any, Literal, get_args, get_origin, get_type_hints

from embertide.program.steps.base import KINDS, Param, Read, Step
from embertide.program.steps.ops import FUNCTIONS

INTRODUCTION = """\
# Programs and their steps

Whatever describes a model ends in a *program*: a list of steps over named tensors, each with a row
for every node. This page has every kind of step with its fields; it is generated from their classes
by `python -m tools.pages`.

N are the nodes, H heads, F columns of a head; heads stand side by side. N(i) are the sources of
node i's in-edges in the layer graph of the step's `layer`, with duplicates. Every step has `out`,
the name of the tensor that it makes, and `layer`, counted from 0.

## A step says everything of itself

A kind of step is one class in one file of `worker/embertide/program/steps/`; nothing else asks what
a step is. The class has

| what | method |
|---|---|
| its fields: tensors are `Read`, parameters `Param`, all else is a plain value | the dataclass |
| the columns of its result, and whether what it reads fits | `width` |
| its meaning, slow and obvious, in float64 and one process | `reference` |
| raised where results get other bits, so that no older checkpoint is used | `meaning` |
| in which layouts it reads tensors and makes its result, on a P x M grid | `place`, `wants_rows` |
| how it runs so; on ghosts, tensors without memory, this plans memory and traffic | `lower` |
| what it computes, for the estimate of a run's time | `values_per_edge`, `flops_per_node` |
| the layer graph that it reads, if it does | `edges` |
| which rows it reads for some, which are stale, how far they move | `wants`, `stale`, `moves` |

To add a kind: write the file, with `class Mine(Step, kind="mine")`, and name it in
`program/steps/__init__.py`. `nodewise.py` has what steps without edges have in common, `base.py`
the rest. `place` returns the operation with what it decides (`op.py`); `lower` reads it there. A
kernel or a primitive that `lower` is the first to call needs a rule for ghosts beside it
(`kernels/ghosts.py`). By default tensors are read as rows or tiles, as `wants_rows` says, and the
result is beside them. A step whose rows can be finished as they are made (a bias, an activation, a
product) is a `Leader`, and runs as one with the steps after it; `program/plans/fuse.py` and
`program/plans/order.py` ask for properties (`product`, `added`, `row_activation`, `commutes`), not
for classes.

Then add programs with it to `tests/support/step_cases.py`: every grid is compared with its
`reference` (`tests/distributed/test_same.py`), and what it moves with what is planned, to the byte
(`test_traffic.py`).

"""

LINES = """\
## Lines

`row_wise` and `message` are a few lines of text, `name = operation(arguments)`, that are
read and run by the engine: no code of the model's author is loaded. Arguments are earlier names,
numbers, strings, and lists of them. Every value has the rows (nodes, or edges) in dimension 0;
`dim` counts it, but no operation may touch it, and sizes are those of one row, so rows never mix.
The last name is `out`, with columns alone.

```
open = sigmoid(x0)
kept = mul(open, x1)
out = linear(kept, p0)
```

Operations are torch's, by torch's names:
{names}.

`repeat(p, x)` is a parameter as every row of a tensor like `x`; `same(x)` is `x`. `einsum` keeps
the rows' letter first in every operand of rows and in the result.
"""


def page() -> str:
    """The page's text."""
    edges = "; ".join(_fields(KINDS["aggregate"], _OF_EDGES.__contains__))
    parts = [INTRODUCTION, "## Kinds of steps\n", fill(f"Fields of edges: {edges}.", 100), ""]
    parts += [_kind(KINDS[name]) for name in sorted(KINDS)]
    names = ", ".join(f"`{name}`" for name in sorted(FUNCTIONS) if name not in ("repeat", "same"))
    return "\n".join(parts) + "\n" + LINES.replace("{names}", fill(names, 98))


_OF_EDGES = ("loops", "loop_weight", "edge_weight", "relation")


def _kind(kind: type[Step]) -> str:
    about = inspect.cleandoc(kind.__doc__ or "").replace("``", "`")
    own = "; ".join(_fields(kind, lambda name: name not in _OF_EDGES))
    edges = "; and those of edges" * any(True for _ in _fields(kind, _OF_EDGES.__contains__))
    return f"### {kind.kind_name}\n\n{about}\n\n{fill(f'Fields: {own}{edges}.', 100)}\n"


def _fields(kind: type[Step], wanted: Callable[[str], bool]) -> Iterator[str]:
    """Such as "`heads`: integer = 1"."""
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        if field.name not in ("out", "layer") and wanted(field.name):
            default = "" if field.default in (MISSING, None) else f" = {field.default!r}"
            yield f"`{field.name}`: {_type(hints[field.name])}{default}"


def _type(hint: Any) -> str:
    """A field's type in words."""
    words = {
        Read: "tensor", Param: "parameter", str: "string", int: "integer", float: "number",
        bool: "boolean", type(None): "none",
    }  # fmt: skip
    if hint in words:
        return words[hint]
    parts = get_args(hint)
    if get_origin(hint) is Literal:
        return ", ".join(f"`{value}`" for value in parts)
    if get_origin(hint) is tuple:
        return f"list of {_type(parts[0])}"
    return " or ".join(_type(part) for part in parts)
