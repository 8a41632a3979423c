"""What an export makes of a module, as text: its program and what was proved, or the refusal.

Files of ``tests/expected/exports`` have the modules too: above the first name what all of a file's
cases begin with, in each case the user's code, and below ``--`` what comes out of it. The code
defines ``module``, or classes of which the last is exported, or functions of ``self``: methods of
the file's ``Base``. ``options`` are those of `export_module`, with ``graph`` as in ``--graph``; of
several in a list each has what comes out below a ``--`` of its own.
"""

from __future__ import annotations

import builtins
import linecache
import re
import sys
import tempfile
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from embertide.errors import ModelError
from embertide.models.reference import run_typed_reference
from embertide.tracing.explanation import Understood
from embertide.tracing.export import Export, export_module
from embertide.tracing.forward.prepare import reached
from embertide.tracing.forward.results import result_of
from embertide.tracing.graph_types import named_types
from embertide.tracing.prove.agreement import TOLERANCE, error_of, layer_graphs
from embertide.tracing.record.graphs import GraphTypes, random_graph
from embertide.tracing.record.precision import quiet
from tests.support.expected import FOLDER, inputs, preamble
from tests.support.models import Files, read_again, shake
from tests.support.paths import ROOT
from tests.support.pyg import pyg

# First, as it keeps what PyG warns of while it is imported to itself.
assert pyg

_LEN = len
RULE = "--\n"
_INTERNAL = re.compile(
    r"embertide\.tracing|Traced|Traceback|Node\(|__getitem__|unhashable|NoneType(?!' object has no)"
)
"""What no message to a user has."""


def files(dgl: bool) -> list[str]:
    """Files of modules with their exports: those that need DGL, or the others."""
    found = sorted(path.name for path in (FOLDER / "exports").glob("*.txt"))
    return [f"exports/{name}" for name in found if name.startswith("dgl") == dgl]


def cases(dgl: bool) -> list[tuple[str, str]]:
    """File and name of each case."""
    return [(file, name) for file in files(dgl) for name in inputs(file)]


def export_text(file: str, name: str, folder: Path) -> str:
    """The entry of a case: its code, and what is found of it.

    Programs are read again, and give on a graph that no export saw what the module gives itself.
    """
    path, code = folder / "user.py", inputs(file)[name]
    above = preamble(FOLDER / file).count("\n")
    user = _run(file, name, path)

    def line(at: re.Match[str]) -> str:
        number = int(at[1]) - above
        return f"line {number}" if number > 0 else f"common line {at[1]}"

    found = [
        outcome(
            lambda: _export(_module(user, code), _options(more)),  # noqa: B023
            lambda text: re.sub(rf"{re.escape(str(path))}:(\d+)", line, text),
        )
        for more in (user.options if isinstance(user.options, list) else [user.options])
    ]
    return code + "".join(f"{RULE}{one.rstrip()}\n" for one in found)


def module_of(file: str, name: str) -> tuple[Any, dict[str, Any]]:
    """What a case exports, its parameters random, and the first options of its export."""
    user = code_of(file, name)
    given = user.options[0] if isinstance(user.options, list) else user.options
    return _module(user, inputs(file)[name]), _options(given)


def made(file: str, name: str) -> Callable[[], Any]:
    """Makes what a case of ``exports/`` exports."""
    return lambda: module_of(f"exports/{file}", name)[0]


def code_of(file: str, name: str) -> ModuleType:
    """What a case's code and that of its file define."""
    at = list(inputs(file)).index(name)
    return _run(file, name, Path(_folder.name) / f"{Path(file).stem}_{at}.py")


_folder = tempfile.TemporaryDirectory()


def _run(file: str, name: str, path: Path) -> ModuleType:
    """A case's code below that of its file, as a file that was imported."""
    path.write_text(preamble(FOLDER / file) + inputs(file)[name])
    user = sys.modules[path.stem] = ModuleType(path.stem)
    user.__file__ = str(path)
    linecache.checkcache(str(path))
    exec(compile(path.read_text(), path, "exec"), user.__dict__)
    return user


def _export(module: nn.Module, options: Mapping[str, Any]) -> Export:
    """An export that gives what the module gives."""
    known = Understood()
    done = export_module(module, understood=known, **options)
    subject = known.subject
    assert subject is not None
    assert known.graph is not None
    program = read_again(done)
    widths = {of: program.widths[name] for of, name in program.inputs.items()}
    types = reached(module, replace(known.graph, nodes=known.graph.nodes | widths))
    graph = random_graph(types, 29, seed=9)
    for weighted in (True, False) if subject.weights_are_optional else (True,):
        layers = layer_graphs(program, graph, weighted)
        with quiet():
            rows = run_typed_reference(program, layers, graph.x, graph.counts)
            own = subject.fresh().forward(graph, weighted)
        assert list(rows) == list(program.results)
        for key, found in rows.items():
            # Workers have folded norms and shares in float32.
            assert error_of(found, result_of(own, key)) <= 1e-6
    return done


def _module(user: ModuleType, code: str) -> nn.Module:
    """What a case exports, its parameters random."""
    if hasattr(user, "module"):
        return shake(user.module)
    methods = re.findall(r"^def (\w+)\(self", code, re.MULTILINE)
    if methods:
        own = {name: getattr(user, name) for name in methods}
        return shake(type("Net", (user.Base,), own)())
    *_, name = re.findall(r"^class (\w+)", code, re.MULTILINE)
    return shake(getattr(user, name)())


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    """With the graph as an export has it."""
    graph = given.get("graph")
    return {**given, "graph": types_of(graph) if isinstance(graph, Mapping) else graph}


def types_of(graph: Mapping[str, Any]) -> GraphTypes:
    """Node types and relations as ``--graph`` says them."""
    return named_types(graph, Files({}))  # type: ignore[arg-type]


def outcome(export: Callable[[], Export], shown: Callable[[str], str] = str) -> str:
    """The program with what was proved of it, or the refusal, places in it as they are shown."""
    try:
        done = export()
    except ModelError as error:
        message = shown(str(error))
    else:
        return program_text(done)
    finally:
        assert builtins.len is _LEN, "functions of Python are themselves again"
    assert not _INTERNAL.search(message), message
    return _refusal(message)


def _refusal(message: str) -> str:
    """Without what differs from machine to machine; long lines are broken."""
    message = re.sub(r"\S+/site-packages/(\S+\.py):\d+", r"\1", message)
    message = re.sub(rf"{re.escape(str(ROOT))}/(\S+\.py):\d+", r"\1", message)
    message = re.sub(r"(?<=error is )[\d.e+-]+\d", _rounded, message)
    lines = (
        textwrap.fill(
            line, 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        for line in f"refused: {message}".splitlines()
    )
    return "\n".join(lines)


def _rounded(number: re.Match[str]) -> str:
    """A large error to a digit, of a small one only that it is."""
    return f"{float(number[0]):.1g}" if float(number[0]) > 0.01 else "small"


def program_text(done: Export) -> str:
    """Its program.yaml without hashes, and what the proof says beside numbers."""
    proof = done.proof
    assert proof.largest_error <= TOLERANCE
    text = done.files.program.decode().partition("format: 1\n")[2]
    text = re.sub(r"^weights: .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"-[0-9a-f]{12}\.npy", ".npy", text)
    said = {
        "compared with and without edge weights": len(proof.weighted) == 2,
        f"not passed: {', '.join(proof.left_out)}": proof.left_out,
        "not compared on " + "; ".join(one.name for one in proof.not_compared): proof.not_compared,
        "in float64 only": proof.float32_error is None,
        **dict.fromkeys((f"warning: {one}" for one in proof.warnings), True),
    }
    return text.rstrip() + "\n" + "".join(f"# {line}\n" for line, holds in said.items() if holds)
