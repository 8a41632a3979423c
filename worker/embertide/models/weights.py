"""The parameters of a model: reading them, and holding them against what the model expects.

Someone with a wrong name or shape wants to see everything that differs, each expectation beside
what was found. So nothing here stops at the first difference: a builder asks for
parameters by name and symbolic shape, differences are collected, and `Weights.check` raises
them as one error at the end.
"""

from __future__ import annotations

import fnmatch
import json
from dataclasses import dataclass, field
from typing import Any

import safetensors
import safetensors.torch
import torch

from embertide.errors import ModelError
from embertide.models.checkpoints import (
    SCALES,
    flaw_of,
    load_checkpoint,
    refuse_other_weights,
)
from embertide.models.leftovers import ReadLayer, explain_leftovers
from embertide.models.old_names import explain_old_names
from embertide.models.shapes import shape_of

Dim = str | int
"""A size, or the name of one that is bound to a number where it is first met."""

MISSING = "missing"
NOTHING = "nothing"


def load_tensors(data: bytes, source: str) -> dict[str, torch.Tensor]:
    """Read safetensors, a torch state_dict or a checkpoint with one; pickled code is never run.

    Raises:
        ModelError: the file is damaged, or holds something else than named tensors.
    """
    if not source.endswith(".safetensors"):
        return load_checkpoint(data, source)
    refuse_other_weights(data, source)
    try:
        # By name: it gives them in an order that is another one each time.
        return dict(sorted(safetensors.torch.load(data).items()))
    except (safetensors.SafetensorError, KeyError) as error:  # KeyError: a type that torch lacks
        raise ModelError(f"{source} is not a readable safetensors file: {error}") from None


def shared_names(data: bytes, source: str) -> dict[str, str]:
    """Names that ``safetensors.torch.save_model`` left out -> the one that has the same tensor."""
    if not source.endswith(".safetensors"):
        return {}
    header: dict[str, Any] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    found = header.get("__metadata__", {})
    # Metadata is free text too: both must be parameters of a kind.
    return {
        name: kept
        for name, kept in found.items()
        if kept in header and name not in header and _last(name) == _last(kept)
    }


def _last(name: str) -> str:
    return name.rpartition(".")[2]


@dataclass
class Weights:
    """The stored parameters and what became of them.

    ``params`` collects what the program uses (``dtype``, contiguous), under the stored names.
    """

    found: dict[str, torch.Tensor]
    source: str
    params: dict[str, torch.Tensor] = field(default_factory=dict)
    differences: list[tuple[str, str, str]] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    dtype: torch.dtype = torch.float32

    def leave_aside(self, patterns: tuple[str, ...]) -> None:
        """Forget the parameters whose names match a pattern (``*`` matches any text)."""
        for pattern in patterns:
            names = fnmatch.filter(self.found, pattern)
            if not names:
                self.differences.append((pattern, "a name that `ignore` matches", NOTHING))
            for name in names:
                del self.found[name]

    def differ(self, name: str, expected: str, found: str) -> None:
        """Note one difference."""
        self.differences.append((name, expected, found))

    def check(self, layers: list[ReadLayer]) -> None:
        """Hold the two sides against each other, once every layer has asked for its own.

        Raises:
            ModelError: with all differences, and with parameters that nothing asked for.
        """
        left = {name: tensor for name, tensor in self.found.items() if name not in self.taken}
        rows = self.differences + [(name, NOTHING, shape_of(left[name])) for name in left]
        if not rows:
            return
        table = [("parameter", "expected by model.yaml", "found in the weights"), *rows]
        wide = [max(len(row[column]) for row in table) for column in (0, 1)]
        lines = [f"  {a:<{wide[0]}}  {b:<{wide[1]}}  {c}" for a, b, c in table]
        raise ModelError(
            f"model.yaml and {self.source} do not fit together:\n"
            + "\n".join(lines)
            + "".join(f"\n  {hint}" for hint in _hints(rows, left, layers))
        )


class Scope:
    """The parameters of one layer: its name prefix and the sizes known so far.

    A symbolic size is bound by the first parameter that shows it; later ones must agree.
    """

    def __init__(self, weights: Weights, prefix: str, label: str, sizes: dict[str, int]) -> None:
        self.weights = weights
        self.prefix = prefix
        self.label = label
        self.sizes = sizes

    def at(self, prefix: str) -> Scope:
        """The same sizes under another full prefix."""
        return Scope(self.weights, prefix, self.label, self.sizes)

    def name(self, short: str) -> str:
        """The stored name of a parameter."""
        return f"{self.prefix}.{short}" if self.prefix else short

    def has(self, short: str) -> bool:
        """Whether the weights hold it."""
        return self.name(short) in self.weights.found

    def dims(self, short: str) -> int:
        """How many dimensions the stored parameter has; 0 where there is none."""
        found = self.weights.found.get(self.name(short))
        return 0 if found is None else found.dim()

    def size(self, dim: str) -> int:
        """A bound size; 0 where the parameters that tell it are missing."""
        return self.sizes.get(dim, 0)

    def bind(self, dim: str, *factors: str) -> None:
        """Make ``dim`` the product of sizes, as far as they are known."""
        product = 1
        for factor in factors:
            product *= self.size(factor)
        if product:
            self.agree(dim, product)

    def expect(self, dim: str, size: int) -> None:
        """Bind ``dim``, if the size is known."""
        if size:
            self.sizes[dim] = size

    def agree(self, dim: str, size: int) -> None:
        """Bind ``dim``, or note that it was something else before."""
        known = self.sizes.setdefault(dim, size)
        if known != size:
            self.weights.differ(self.prefix, f"{dim} {known}  ({self.label})", f"{dim} {size}")

    def take(self, short: str, *dims: Dim, turned: bool = False, heads: bool = False) -> str:
        """Ask for a parameter of shape ``dims``; returns its name in the program.

        ``turned`` stores its transpose; ``heads`` drops the leading 1 of [1, heads, width].
        """
        tensor = self.raw(short, *dims)
        if tensor is not None:
            tensor = tensor[0] if heads else tensor
            tensor = tensor.t() if turned else tensor
            self.weights.params[self.name(short)] = tensor.to(self.weights.dtype).contiguous()
        return self.name(short)

    def take_any(self, shorts: tuple[str, ...], *dims: Dim) -> str:
        """Ask for the first of several names that is there (libraries' older versions)."""
        return self.take(next(filter(self.has, shorts), shorts[0]), *dims)

    def raw(self, short: str, *dims: Dim) -> torch.Tensor | None:
        """The stored tensor, or None after noting how it differs from what was expected."""
        name = self.name(short)
        tensor = self.weights.found.get(name)
        self.weights.taken.add(name)
        if tensor is None:
            self.weights.differ(name, self._expected(dims), MISSING)
            return None
        fits = tensor.dim() == len(dims) and all(
            self._known(dim) in (None, size) for dim, size in zip(dims, tensor.shape, strict=True)
        )
        if not fits:
            self.weights.differ(name, self._expected(dims), shape_of(tensor))
            return None
        flaw = flaw_of(tensor)
        if flaw or not bool(torch.isfinite(tensor).all()):
            found = flaw or "NaN or Inf"
            self.weights.differ(name, f"finite floating-point numbers  ({self.label})", found)
        for dim, size in zip(dims, tensor.shape, strict=True):
            if isinstance(dim, str):
                self.sizes.setdefault(dim, size)
        return None if flaw else tensor.detach()

    def put(self, name: str, tensor: torch.Tensor) -> str:
        """Add a derived parameter; returns its name."""
        self.weights.params[name] = tensor.to(self.weights.dtype).contiguous()
        return name

    def pass_over(self, short: str) -> None:
        """Take a parameter that inference has no use for, if it is there."""
        self.weights.taken.add(self.name(short))

    def shared(self, one: str, other: str) -> str:
        """Which of two modules that are one to ask for; a file may hold it under either name."""
        if not self.has(f"{one}.weight") and self.has(f"{other}.weight"):
            return other
        for short in ("weight", "bias"):
            first = self.weights.found.get(self.name(f"{one}.{short}"))
            second = self.weights.found.get(self.name(f"{other}.{short}"))
            self.pass_over(f"{other}.{short}")
            if first is not None and second is not None and not torch.equal(first, second):
                expected = f"the same as {one}.{short}, as they are shared  ({self.label})"
                self.weights.differ(self.name(f"{other}.{short}"), expected, "other values")
        return one

    def _known(self, dim: Dim) -> int | None:
        return dim if isinstance(dim, int) else self.sizes.get(dim)

    def _expected(self, dims: tuple[Dim, ...]) -> str:
        shown = [str(dim if self._known(dim) is None else self._known(dim)) for dim in dims]
        return f"[{', '.join(shown)}]  ({self.label})"


_ADVICE = {
    ("res_fc.weight", NOTHING): "residual: true makes a layer read res_fc",
    ("res.weight", NOTHING): "residual: true makes a layer read res",
    ("lin_r.weight", MISSING): "root_weight: false (sage) or share_weights: true (gatv2) do"
    " without lin_r",
    ("fc_dst.weight", MISSING): "share_weights: true does without fc_dst",
    ("apply_func.weight", MISSING): "mlp: [linear, relu, linear] describes GIN's function",
    ("nn.weight", MISSING): "mlp: [linear, relu, linear] describes GIN's function",
    ("bias", MISSING): "bias: false describes a layer without bias",
    (
        "lin_edge.weight",
        NOTHING,
    ): "edge_dim: (its columns) makes a layer read the features of edges;"
    " where the module's forward was not given any, ignore leaves its parameters aside",
}


def _hints(
    rows: list[tuple[str, str, str]], left: dict[str, torch.Tensor], layers: list[ReadLayer]
) -> list[str]:
    """What explains the differences; names of other releases explain those that are left too."""
    old = explain_old_names([name for name, _, found in rows if found == MISSING], left)
    return old.lines or [*_advice(rows), *explain_leftovers(left, layers)]


def _advice(rows: list[tuple[str, str, str]]) -> list[str]:
    """What in ``model.yaml`` commonly mends these differences."""
    advice = {
        text: None
        for name, expected, found in rows
        for (ending, side), text in _ADVICE.items()
        if side in (expected, found) and (name == ending or name.endswith("." + ending))
    }
    scales = [SCALES] if any(found.startswith("torch.") for _, _, found in rows) else []
    return [*advice, *scales]
