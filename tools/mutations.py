"""Mutations: what a seed draws from the product's source, one node changed in each.

What is drawn depends on the seed and on the text of each function alone, so that a change elsewhere
leaves the other mutants as they are. Docstrings, messages, annotations, logging, ``__repr__`` and
what only a type checker reads are never changed.
"""

from __future__ import annotations

import ast
import copy
import gc
import hashlib
import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

ROOMS = {
    "steps": "worker/embertide/program/steps",
    "infer": "worker/embertide/engine/stages/infer",
    "versions": "worker/embertide/io/versions",
    "readers": "worker/embertide/io/readers",
    "decide": "operator/embertide_operator/decide",
}

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult, ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.MatMult: ast.Mult,
}  # fmt: skip
EXTREMES = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "amin": "amax",
    "amax": "amin", "clamp_min": "clamp_max", "clamp_max": "clamp_min", "any": "all", "all": "any",
}  # fmt: skip
LOGGERS = ("log", "logger", "_log", "_LOG", "logging", "warnings", "LOG")


@dataclass(frozen=True)
class Mutant:
    """One change of one node. ``key`` stays the same while the function's text does."""

    key: str
    room: str
    path: str
    line: int
    function: str
    operator: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} [{self.operator}] {self.before} -> {self.after}"


Change = tuple[str, ast.AST]
"""The name of an operator and what a node becomes by it."""


def changes(node: ast.AST) -> Iterator[Change]:
    """What the operators make of one node, without its children."""

    def changed(operator: str, value: Any, *path: str) -> Change:
        holder: Any = (other := copy.deepcopy(node))
        for name in path[:-1]:
            holder = getattr(holder, name)
        setattr(holder, path[-1], value)
        return operator, other

    match node:
        case ast.Compare(ops=ops):
            for at, compare in enumerate(ops):
                opposite = COMPARISONS[type(compare)]()
                yield changed("comparison", [*ops[:at], opposite, *ops[at + 1 :]], "ops")
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in ARITHMETIC:
            yield changed("arithmetic", ARITHMETIC[type(op)](), "op")
        case ast.BoolOp(op=join):
            yield changed("boolean", ast.Or() if isinstance(join, ast.And) else ast.And(), "op")
        case ast.UnaryOp(op=ast.Not()):
            yield "boolean", node.operand
        case ast.Constant(value=bool() as truth):
            yield changed("constant", not truth, "value")
        case ast.Constant(value=int() | float() as number):
            yield changed("constant", number + 1, "value")
        case ast.Return(value=ast.expr() as result) if not _is_none(result):
            yield "return", ast.Return(ast.Constant(None))
        case ast.Return():
            yield "return", ast.Pass()
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield "statement", ast.Pass()
        case ast.Subscript(slice=ast.Slice() as bounds):
            for name, sign in (("lower", ast.Add()), ("upper", ast.Sub())):
                if isinstance(end := getattr(bounds, name), ast.expr) and not _is_number(end):
                    yield changed("index", ast.BinOp(end, sign, ast.Constant(1)), "slice", name)
        case ast.Call(func=func, args=args):
            for at, (first, second) in enumerate(itertools.pairwise(args)):
                if not any(isinstance(a, ast.Starred) for a in (first, second)):
                    swapped = [*args[:at], second, first, *args[at + 2 :]]
                    yield changed("arguments", swapped, "args")
            match func:
                case ast.Name(id=name) if name in EXTREMES:
                    yield changed("extreme", EXTREMES[name], "func", "id")
                case ast.Attribute(attr=name) if name in EXTREMES:
                    yield changed("extreme", EXTREMES[name], "func", "attr")


def _is_none(node: ast.AST | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) or (
        isinstance(node, ast.Constant) and isinstance(node.value, int)
    )


def sites(tree: ast.AST, function: str = "") -> Iterator[tuple[str, Any]]:
    """Every node that may change, with the function around it: no annotation, message, logging."""
    for child in ast.iter_child_nodes(tree):
        match child:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name in ("__repr__", "__str__"):
                    continue
                inner = f"{function}.{name}".lstrip(".")
                defaults = [*child.args.defaults, *filter(None, child.args.kw_defaults)]
                yield from sites(ast.Module([ast.Expr(d) for d in defaults], []), function)
                # What ends a function anyway is no change to it.
                ends = isinstance(last := child.body[-1], ast.Return) and _is_none(last.value)
                yield from sites(ast.Module(child.body[:-1] if ends else child.body, []), inner)
            case ast.ClassDef(name=name):
                yield from sites(ast.Module(child.body, []), f"{function}.{name}".lstrip("."))
            case ast.AnnAssign(value=value):
                yield from sites(ast.Module([ast.Expr(value)] if value else [], []), function)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.Assign(value=ast.BinOp(op=ast.BitOr())) if not function:  # a type's name
                continue
            case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.match_case():
                if isinstance(child, ast.match_case):
                    yield from sites(ast.Module(child.body, []), function)
            case ast.Call(func=ast.Name(id="cast" | "TypeVar" | "isinstance" | "issubclass")):
                continue
            case ast.Expr(value=ast.Call(func=called)) if _root(called) in LOGGERS:
                continue
            case _:
                yield function, child
                yield from sites(child, function)


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def candidates(room: str, path: str, text: str) -> Iterator[tuple[Mutant, ast.AST, ast.AST]]:
    """Mutants of one file, each with a node and what it becomes."""
    seen = Counter[str]()
    for function, node in sites(ast.parse(text)):
        if not hasattr(node, "lineno"):
            continue
        for operator, other in changes(node):
            before, after = (" ".join(ast.unparse(n).split()) for n in (node, other))
            name = "|".join((path, function, operator, before, after))
            seen[name] += 1
            key = _digest(f"{name}|{seen[name]}")[:12]
            yield (
                Mutant(key, room, path, node.lineno, function, operator, before, after),
                node,
                other,
            )


def mutated(text: str, node: ast.AST, other: ast.AST) -> str | None:
    """The text with the node changed; None where that does not compile or changes nothing."""
    changed = _replaced(text, node, other)
    try:
        compile(changed, "mutant", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    return None if ast.dump(ast.parse(changed)) == ast.dump(ast.parse(text)) else changed


def _replaced(text: str, node: Any, other: ast.AST) -> str:
    """The text with a node's place taken by another, in parentheses where it is an expression."""
    written = ast.unparse(ast.fix_missing_locations(other))
    if isinstance(other, ast.expr):
        written = f"({written})"
    lines = text.encode().splitlines(keepends=True)
    head = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    end = node.end_lineno - 1
    tail = lines[end][node.end_col_offset :] + b"".join(lines[end + 1 :])
    whole: bytes = head + written.encode() + tail
    return whole.decode()


def files(root: Path, room: str) -> dict[str, str]:
    """The sources of a room by their paths below the root."""
    found = sorted((root / ROOMS[room]).rglob("*.py"))
    return {str(f.relative_to(root)): f.read_text() for f in found}


def shares(root: Path, count: int) -> dict[str, int]:
    """How many mutants a room gets: by its lines, together ``count``."""
    lines = {room: sum(t.count("\n") for t in files(root, room).values()) for room in ROOMS}
    exact = {room: count * n / sum(lines.values()) for room, n in lines.items()}
    down = {room: int(share) for room, share in exact.items()}
    for room in sorted(exact, key=lambda r: down[r] - exact[r])[: count - sum(down.values())]:
        down[room] += 1
    return down


def drawn(root: Path, seed: int, count: int) -> list[tuple[Mutant, str]]:
    """The mutants of a seed, with the text of the file that each is in; at most one of a line.

    They come in an order in which each beginning has its part of every room.
    """
    chosen = []
    for room, share in shares(root, count).items():
        sources, lines = files(root, room), set[tuple[str, int]]()
        found: list[tuple[Mutant, str]] = []
        every = [c for path, text in sources.items() for c in candidates(room, path, text)]
        for mutant, node, other in _in_turn(every, seed):
            if len(found) == share:
                break
            if (mutant.path, mutant.line) not in lines:
                if (text := mutated(sources[mutant.path], node, other)) is None:
                    continue
                lines.add((mutant.path, mutant.line))
                found.append((mutant, text))
        chosen += [((at + 0.5) / share, *pair) for at, pair in enumerate(found)]
    return [(mutant, text) for _, mutant, text in sorted(chosen, key=lambda c: (c[0], c[1].key))]


def _in_turn(every: list[tuple[Mutant, ast.AST, ast.AST]], seed: int) -> Iterator[Any]:
    """One of each operator after the other: there are far more of some than of others."""
    queues: dict[str, list[Any]] = {}
    for candidate in sorted(every, key=lambda c: _digest(f"{seed}|{c[0].key}")):
        queues.setdefault(candidate[0].operator, []).append(candidate)
    for group in itertools.zip_longest(*(queues[name] for name in sorted(queues))):
        yield from filter(None, group)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def recording(path: str, text: str) -> str:
    """A source whose functions note that they are called."""
    lines, tree = text.splitlines(keepends=True), ast.parse(text)
    inserted: dict[int, str] = {}

    def first(body: list[ast.stmt]) -> int:
        at: Any = body[1 if ast.get_docstring(ast.Module(body, [])) is not None and body[1:] else 0]
        lineno: int = min(n.lineno for n in (at, *getattr(at, "decorator_list", ())))
        return lineno

    def visit(node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{name}.{child.name}".lstrip(".")
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                at = first(child.body)
                if at > child.lineno:
                    space = lines[at - 1][: len(lines[at - 1]) - len(lines[at - 1].lstrip())]
                    inserted[at] = f"{space}_mutant_call({f'{path}:{inner}'!r})\n"
            visit(child, inner)

    visit(tree, "")
    top = next((s for s in tree.body if not _is_head(s)), None)
    if top is None:
        return text
    inserted[first([top])] = "from mutant_calls import call as _mutant_call\n"
    return "".join(inserted.get(at, "") + line for at, line in enumerate(lines, 1))


def _is_head(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.ImportFrom):
        return statement.module == "__future__"
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


Codes = dict[FunctionType, CodeType]


def functions_of(root: Path) -> dict[str, list[FunctionType]]:
    """The functions of this process by the file below a folder that each is from."""
    live: dict[str, list[FunctionType]] = {}
    for held in gc.get_objects():
        if type(held) is FunctionType and held.__code__.co_filename.startswith(f"{root}/"):
            live.setdefault(held.__code__.co_filename, []).append(held)
    return live


def replacing(
    path: Path, before: str, after: str, functions: dict[str, list[FunctionType]]
) -> Codes | None:
    """What functions that this process has imported from a file are with another text.

    None where that is not all of the difference: what the file runs as it is imported differs too.
    """
    if all(getattr(module, "__file__", None) != str(path) for module in [*sys.modules.values()]):
        return {}
    old, new = (list(_outer(compile(t, path, "exec", dont_inherit=True))) for t in (before, after))
    if len(old) != len(new):
        return None
    live: dict[str, list[FunctionType]] = {}
    for function in functions.get(str(path), ()):
        live.setdefault(function.__code__.co_qualname, []).append(function)
    names, found = Counter(code.co_qualname for code in old), dict[FunctionType, CodeType]()
    for was, code in zip(old, new, strict=True):
        if _text_of(was) == _text_of(code):
            continue
        if not code.co_flags & CO_OPTIMIZED or code.co_qualname not in live:
            return None
        # Of functions that a function has made, each that is there is replaced, too.
        within = (
            Counter(inner.co_qualname for inner in _codes(code))
            + names
            - Counter([code.co_qualname])
        )
        for inner in _codes(code):
            for function in live.get(inner.co_qualname, ()):
                if (
                    within[inner.co_qualname] > 1
                    or function.__code__.co_freevars != inner.co_freevars
                ):
                    return None
                found[function] = inner
    return found


def _outer(code: CodeType) -> Iterator[CodeType]:
    """A file's code, those of its classes, and of the functions that no function holds."""
    yield code
    for held in code.co_consts:
        if isinstance(held, CodeType) and not code.co_flags & CO_OPTIMIZED:
            yield from _outer(held)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for held in code.co_consts:
        if isinstance(held, CodeType):
            yield from _codes(held)


def _text_of(code: CodeType) -> tuple[Any, ...]:
    """What a code does; of a function with those that it holds."""
    held = [c for c in code.co_consts if isinstance(c, CodeType)]
    plain = tuple(repr(c) for c in code.co_consts if not isinstance(c, CodeType))
    inner = tuple(map(_text_of, held)) if code.co_flags & CO_OPTIMIZED else ()
    return code.co_code, code.co_names, plain, inner
