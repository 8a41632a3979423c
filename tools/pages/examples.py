"""docs/examples.md: the examples of PyG and DGL that are exported in tests."""

from __future__ import annotations

from collections.abc import Iterator

from embertide.models.dgl_interop import why_no_dgl
from tests.support.examples import encode, pyg, typed
from tests.support.examples.case import Example

INTRODUCTION = """\
# Examples of PyG and DGL

Models of the libraries' own examples that make embeddings of nodes, written as the example has
them, and what [export](export.md) makes of each. Tests export every one: its program agrees with
the module's own `forward` in float64 to 1e-9 on
[a dozen graphs](export/proof.md#what-the-proof-proves), and then, on grids of 1x1, 2x1, 1x2 and 2x2
workers, with that program's float64 reference. This page is made from these tests by
`python -m tools.pages`.

"As it is" is a module without a change and without an option. Names are of files in PyG's folder of
examples, and in that of DGL's for PyTorch.
"""


def examples() -> list[Example]:
    """All of them; without DGL's where it cannot be imported."""
    groups = [pyg.EXAMPLES, encode.EXAMPLES, typed.EXAMPLES]
    if not why_no_dgl():
        from tests.support.examples import dgl, kept, typed_dgl

        groups += [dgl.EXAMPLES, kept.EXAMPLES, typed_dgl.EXAMPLES]
    return [example for group in groups for example in group]


def page() -> str:
    """The page."""
    return "\n".join([INTRODUCTION, *_tables()]).rstrip("\n") + "\n"


def _tables() -> Iterator[str]:
    for library in ("PyG", "DGL"):
        of_library = [one for one in examples() if one.library == library]
        exported = sorted((one for one in of_library if not one.refused), key=lambda one: one.path)
        refused = sorted((one for one in of_library if one.refused), key=lambda one: one.path)
        yield f"## {library}: {len(exported)} exported\n"
        yield "| example | what it takes |\n|---|---|"
        yield from (f"| {_short(one)} | {one.line or 'as it is'} |" for one in exported)
        yield f"\n### {library}: {len(refused)} refused\n"
        yield "| example | why, and what to do |\n|---|---|"
        yield from (f"| {_short(one)} | {one.line} |" for one in refused)
        yield ""


def _short(example: Example) -> str:
    return example.path.removeprefix("examples/").removeprefix("pytorch/")
