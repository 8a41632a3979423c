"""docs/model.md and docs/model/: the options of model.yaml, with tested examples."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import textwrap
import types
import typing
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Literal, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from embertide.models import parts
from embertide.models.convs.hetero import Hetero
from embertide.models.description import Description
from embertide.models.kinds import LAYERS, TYPED_LAYERS
from embertide.models.layer import Layer, Library
from embertide.models.norm_options import GraphNormOptions, LayerNormOptions
from embertide.models.unknown import ARGUMENTS
from tests.support import model_examples_hetero
from tests.support.conv_cases import EXAMPLES
from tests.support.conv_cases.case import Example
from tests.support.paths import ROOT

NAMES: dict[Library, str] = {"dgl": "DGL", "pyg": "PyTorch Geometric"}

INTRODUCTION = """\
# model.yaml

It lies beside the weights and describes the modules that were trained, layer by layer. Options
have the names and defaults of the library that trained the model. Widths and heads follow from the
weights. These pages are generated from the classes that read the file. An example has a module's
members, its forward and its `model.yaml`; each runs in the tests, against the library's own module
and on grids of every kind.

Most of a forward is described by its layers in order. What follows a layer (norm, activation, link)
is an option of the layer. A Linear between convolutions is a layer, `conv: linear`; so is
JumpingKnowledge.

`spec.inference.fanout` has one number for each layer that reads edges, so none for `linear` and
`jumping_knowledge`; the k steps of a `propagate`, `appnp` or `tag` layer read one sample, and so
do those of any other filter. Layers with `edge_dim`, and `gine` and `edge_gat`, read the features
of the edges that `spec.input.edges[].features` names. [convolutions.md](convolutions.md) lists each
library's modules, and what the tests compare.
"""

PAGES: dict[str, tuple[Library, str]] = {
    f"model/{library}-{family}.md": (library, family)
    for library in get_args(Library)
    for family in ("sums", "attention", "filters")
}
FAMILIES = {
    "attention": "agnn dotgat edge_gat fa gat gatv2 transformer",
    "filters": "appnp arma cheb gcn2 lg lightgcn propagate sg ssg tag",
}
"""Layers by what they compute; all others are of the family "sums"."""
_SEVERAL = 2
"""A field that as many layers of a library have is described once."""

SHORT = {
    parts.ActivationOptions: "`activation: relu` is short for `activation: {kind: relu}`.",
    parts.NormOptions: "`batch_norm: true` is one with the defaults, `false` is none.",
    LayerNormOptions: '`layer_norm: true` is `torch.nn.LayerNorm`, or PyG\'s with `mode="node"`.'
    " **PyG's own default is the other mode**: its `LayerNorm(8)` is `layer_norm: {mode: graph}`.",
    GraphNormOptions: "`graph_norm: true` is a GraphNorm, `graph_norm: instance` is short for"
    " `graph_norm: {kind: instance}`. Statistics are those of all nodes of the type, computed again"
    " in every run.",
    parts.SkipOptions: "`skip: true` adds the layer's input. A link is added after all else,"
    " unless `order` puts it elsewhere: `order: [skip, activation]` adds it before the activation.",
    parts.MlpModule: "An item is one module. `linear`, `batch_norm`, `layer_norm` alone stand for"
    " the next such module among the weights, other words for activations:"
    " `mlp: [linear, batch_norm, relu, linear]`. A name is given as"
    ' `{linear: "0", bias: false}`.',
}
TITLES: dict[type[BaseModel], str] = {
    parts.ActivationOptions: "activation",
    parts.NormOptions: "batch_norm",
    LayerNormOptions: "layer_norm",
    GraphNormOptions: "graph_norm",
    parts.SkipOptions: "skip",
    parts.MlpModule: "mlp",
}
FORMS: dict[type[BaseModel], str] = {
    parts.ActivationOptions: "string or [mapping](model.md#activation)",
    parts.NormOptions: "boolean or [mapping](model.md#batch_norm)",
    LayerNormOptions: "boolean or [mapping](model.md#layer_norm)",
    GraphNormOptions: "boolean, kind or [mapping](model.md#graph_norm)",
    parts.SkipOptions: "boolean or [mapping](model.md#skip)",
    parts.MlpModule: "string or [mapping](model.md#mlp)",
    Layer: "mapping",
}
WEIGHTS = {
    True: "Stored edge weights count, unless `edge_weight: false`.",
    False: "Stored edge weights count only with `edge_weight: true`.",
}
PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string"}

Field = tuple[str, FieldInfo]


def page() -> str:
    """The page with what all layers have."""
    parts = [*_general(), *_several(), *_arguments()]
    return INTRODUCTION + _links("\n".join(parts), "model.md")


def family(name: str) -> str:
    """One of `PAGES`."""
    library, which = PAGES[name]
    lines = [f"# model.yaml: {which} of {NAMES[library]}\n"]
    lines += [part for conv in _convs(library, which) for part in _layer(library, conv)]
    return _links("\n".join(lines), name)


def typed() -> str:
    """The page of several node types."""
    return _links("\n".join(_typed()), "model/typed.md")


def _links(text: str, name: str) -> str:
    """Links to model.md as the page has them, and its examples in the style of the repository."""
    to = {"model.md": ""}.get(name, "../model.md")
    text = text.replace("](model.md#", f"]({to}#").rstrip() + "\n"
    ruff = [sys.executable, "-m", "ruff", "format", "--stdin-filename", f"docs/{name}", "-"]
    return subprocess.run(
        ruff, input=text, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def _convs(library: Library, which: str) -> list[str]:
    placed = {conv: name for name, convs in FAMILIES.items() for conv in convs.split()}
    return [conv for conv in LAYERS[library] if placed.get(conv, "sums") == which]


def _general() -> Iterator[str]:
    yield "\n## Layers\n"
    for name, (library, which) in PAGES.items():
        convs = ", ".join(f"`{conv}`" for conv in _convs(library, which))
        yield f"- [{NAMES[library]}, {which}]({name}): {convs}"
    kinds = ", ".join(sorted({f"`{conv}`" for convs in TYPED_LAYERS.values() for conv in convs}))
    yield f"- [several node types](model/typed.md): {kinds}\n"
    yield "## The file\n"
    yield from _table(_fields(Description))
    yield "## Every layer\n"
    yield from _table(_fields(Layer))
    for kind, title in TITLES.items():
        yield f"### {title}\n\n{textwrap.fill(SHORT[kind], 100)}\n"
        yield from _table(_fields(kind))


def _several() -> Iterator[str]:
    """Fields that several layers have, as most of these have them."""
    for library in LAYERS:
        yield f"## Fields of several layers: {library}\n"
        yield from _table(_common(library).values())


def _common(library: Library) -> dict[str, Field]:
    """Their rows -> they."""
    fields = [own for kind in LAYERS[library].values() for own in _own(kind)]
    counts = Counter(_row(*own) for own in fields)
    most: dict[str, Field] = {}
    for name, field in sorted(fields, key=lambda own: counts[_row(*own)]):
        most[name] = (name, field)
    return {_row(*own): own for own in most.values() if counts[_row(*own)] >= _SEVERAL}


def _layer(library: Library, conv: str) -> Iterator[str]:
    kind = LAYERS[library][conv]
    modules = ", ".join(f"`{name}`" for name in modules_of(library, kind))
    of = f" ({modules})" if modules else ""
    yield f"## {library}: {conv}\n\n{textwrap.fill(f'{_about(kind)}{of}. {_edges(kind)}', 100)}\n"
    common = _common(library)
    alone = [own for own in _own(kind) if _row(*own) not in common]
    names = ", ".join(f"`{name}`" for name, field in _own(kind) if _row(name, field) in common)
    if alone:
        yield from _table(alone)
    if names:
        yield f"As in [several layers](model.md#fields-of-several-layers-{library}): {names}.\n"
    yield from _example(EXAMPLES[library][conv])


def _own(kind: type[Layer]) -> list[Field]:
    return [(name, field) for name, field in _fields(kind) if _is_own(kind, name, field)]


SEVERAL = """\
# model.yaml: several node types

A model that lists `relations`, or has a layer below, names its node types as the manifest does.
Every layer reads one tensor of each type and makes one of each:

- `linear` passes each type through its own Linear. What is stored for a type lies below the prefix
  and the type's name (`lins.user`), in PyG's HeteroDictLinear in `lins.lins.user`, in DGL's
  HeteroLinear in `lins.linears.user`, or where `{type}` stands in the prefix (`{type}.lin`). A
  Linear that all types share is recognised by its weights. `types` lists the types that pass
  through it.
- Norms, activations and links follow for each type; the prefix of a norm is required, and is read
  in the same way.
- A type to which no relation of a `hetero` layer leads has no tensor after it, as in the
  libraries.
- Steps that the `outputs` do not need are left out, and so are features that nothing reads.

The example of `pyg: hetero` shows everything once. Whatever does not fit is one error: a relation
that `relations` does not list, a relation without a module among the weights, a module that no
relation reads, a type of which there is no tensor.
"""


def _typed() -> Iterator[str]:
    yield SEVERAL
    for library, kinds in reversed(TYPED_LAYERS.items()):
        for conv, kind in kinds.items():
            modules = ", ".join(f"`{name}`" for name in modules_of(library, kind))
            yield f"## {library}: {conv}, several relations\n"
            yield textwrap.fill(f"{_about(kind)} ({modules})", 100) + "\n"
            rest = (inspect.getdoc(kind) or "").split("\n\n")[1:]
            yield from (textwrap.fill(part, 100) + "\n" for part in rest)
            weights = "Each convolution takes its relation's edge weights as on its own."
            yield (weights if issubclass(kind, Hetero) else _edges(kind)) + "\n"
            if _own(kind):
                yield from _table(_own(kind))
            yield from _example(model_examples_hetero.EXAMPLES[library][conv])


def modules_of(library: Library, kind: type[Layer]) -> list[str]:
    """The names of the library's own modules."""
    other = {"dgl": "torch_geometric", "pyg": "dgl"}[library]
    return [name for name in kind.module.split(", ") if name and not name.startswith(other)]


def _about(kind: type[Layer]) -> str:
    return (inspect.getdoc(kind) or "").split("\n\n")[0].rstrip(".")


def _edges(kind: type[Layer]) -> str:
    if not kind.reads_edges:
        return "Reads no edges."
    return WEIGHTS[kind.weighted] if kind.weighted is not None else "Takes no edge weights."


def _is_own(kind: type[Layer], name: str, field: FieldInfo) -> bool:
    """Whether the field is more than every layer's."""
    every = Layer.model_fields.get(name)
    if name == "conv" or name in kind.fixed_fields():
        return False
    return every is None or every.description != field.description


def _example(example: Example) -> Iterator[str]:
    yield f"```python\n{_forms(inspect.getsource(example.make))}\n```\n"
    yield f"```yaml\n{example.yaml.strip()}\n```\n"


def _forms(source: str) -> str:
    """A module's two methods without what every module has: its members, then its forward."""
    members, forward = source.split("        super().__init__()\n", 1)[1].split(
        "    def forward(", 1
    )
    arguments = re.sub(
        r"\b(\w+): [\w\[\], ]+?(?= = |, \w+:|\))", r"\1", forward.split(") ->")[0] + ")"
    )
    arguments = arguments.replace(" = ", "=")
    body = forward.split(":\n", 1)[1]
    lines = (
        textwrap.dedent(members).strip(),
        textwrap.indent(textwrap.dedent(body).rstrip(), "    "),
    )
    return f"{lines[0]}\n\ndef forward({arguments}:\n{lines[1]}"


def _arguments() -> Iterator[str]:
    yield "## Arguments of the libraries that are not fields\n"
    yield "| argument | |\n|---|---|"
    meanings: dict[str, list[str]] = {}
    for name, meaning in ARGUMENTS.items():
        meanings.setdefault(meaning, []).append(f"`{name}`")
    for meaning, names in meanings.items():
        yield f"| {', '.join(names)} | {meaning} |"
    yield ""


def _fields(kind: type[BaseModel]) -> list[Field]:
    return [(field.alias or name, field) for name, field in kind.model_fields.items()]


def _table(fields: Iterable[Field]) -> Iterator[str]:
    yield "| field | type | default | meaning |\n|---|---|---|---|"
    for name, field in fields:
        assert field.description, name
        yield _row(name, field)
    yield ""


def _row(name: str, field: FieldInfo) -> str:
    return f"| `{name}` | {_type(field.annotation)} | {_default(field)} | {field.description} |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is None or value in ((), {}):
        return ""
    if isinstance(value, BaseModel):
        value = "{" + ", ".join(f"{key}: {at}" for key, at in value if at is not None) + "}"
    return f"`{str(value).lower() if isinstance(value, bool) else value or repr(value)}`"


def _type(annotation: Any) -> str:
    """A type as the writer of a YAML file needs it."""
    inner = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if annotation in PLAIN:
        return PLAIN[annotation]
    if origin is Literal:
        return ", ".join(f"`{str(value).lower() if value is False else value}`" for value in inner)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(one) for one in inner if one is not type(None))
    if origin is dict:
        return f"mapping of {_type(inner[0])} to {_type(inner[1])}"
    if origin in (tuple, list):
        return f"list of {_type(inner[0])}"
    if inner:
        return _type(inner[0])
    return FORMS[annotation]
