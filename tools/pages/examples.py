"""docs/examples.md: the examples of PyG and DGL that are exported in tests."""

from __future__ import annotations

import json
from collections.abc import Iterator

from embertide.models.dgl_interop import why_no_dgl
from tests.support.examples import encode, pyg, typed
from tests.support.examples.case import Example
from tests.support.paths import ROOT

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

ARCHIVE = """\
## A real graph: Debian's archive

133,637 binary and source packages of four releases, 1,105,314 dependencies used both ways round, 64
columns of text features. Two layers of PyG's `SAGEConv` are trained without a tenth of the
dependencies; then each hidden one is looked for among all packages, by popularity alone, by it
with the features and by it with the embeddings ({seeds} seeds, mean ± standard deviation):

| ranked by | recall@10 | MRR |
|---|---|---|
{rows}

`embertide run` publishes all rows in 11 s on a 2x1 grid of a busy machine with two cores, with at
most 181 MiB for a worker beyond its imports; rows that it published of what training had seen gave
the measures of the module itself.

```
.venv/bin/python examples/debian-archive/build.py
.venv/bin/python examples/debian-archive/evaluate.py --seeds 10
.venv/bin/embertide run examples/debian-archive/job.yaml
```

`examples/debian-archive/README.md` has the rest.
"""
RESULTS = ROOT / "examples" / "debian-archive" / "results.jsonl"
"""A line for each seed, and one of their means and deviations."""


def examples() -> list[Example]:
    """All of them; without DGL's where it cannot be imported."""
    groups = [pyg.EXAMPLES, encode.EXAMPLES, typed.EXAMPLES]
    if not why_no_dgl():
        from tests.support.examples import dgl, kept, typed_dgl

        groups += [dgl.EXAMPLES, kept.EXAMPLES, typed_dgl.EXAMPLES]
    return [example for group in groups for example in group]


def page() -> str:
    """The page."""
    return "\n".join([INTRODUCTION, *_tables(), _archive()]).rstrip("\n") + "\n"


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


def _archive() -> str:
    *seeds, summary = map(json.loads, RESULTS.read_text().splitlines())
    cells = {
        way: " | ".join(f"{mean:.3f} ± {deviation:.3f}" for mean, deviation in found.values())
        for way, found in summary.items()
    }
    rows = [f"| {way} | {cells[way]} |" for way in summary]
    return ARCHIVE.format(seeds=len(seeds), rows="\n".join(rows))


def _short(example: Example) -> str:
    return example.path.removeprefix("examples/").removeprefix("pytorch/")
