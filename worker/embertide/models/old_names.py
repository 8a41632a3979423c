"""Parameters under the names that other releases of PyG gave them.

Nothing is renamed but a projection that was stored twice: a matrix may be the transpose, and an
attention vector the half of another, which names alone do not prove. What they look like is
reported, with the line of Python that converts the file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from torch import Tensor

from embertide.models.checkpoints import same_values


@dataclass(frozen=True)
class _Rule:
    """``new`` is made of ``old`` by ``code``, of the names below one convolution."""

    new: str
    old: tuple[str, ...]
    word: str
    code: str = "{0}"


@dataclass(frozen=True)
class OldNames:
    """Sentences, and the missing and stored names that they explain."""

    lines: list[str]
    explained: set[str]


_RULES = (
    _Rule("lin.weight", ("weight",), "transposed", "{0}.t()"),
    _Rule("lin_rel.weight", ("weight",), "transposed", "{0}.t()"),
    _Rule("lin_root.weight", ("lin.weight",), "renamed"),
    _Rule("lin_rel.bias", ("lin.bias",), "renamed"),
    _Rule("lin.weight", ("lin_src.weight", "lin_dst.weight"), "merged"),
    _Rule("lin.weight", ("lin_l.weight", "lin_r.weight"), "merged"),
    _Rule("lin_src.weight", ("lin_l.weight",), "renamed"),
    _Rule("lin_dst.weight", ("lin_r.weight",), "renamed"),
    _Rule("lin_src.weight", ("lin.weight",), "split"),
    _Rule("lin_dst.weight", ("lin.weight",), "split"),
    _Rule("att_dst", ("att",), "split", "{0}[..., : {0}.shape[-1] // 2]"),
    _Rule("att_src", ("att",), "split", "{0}[..., {0}.shape[-1] // 2 :]"),
    _Rule("att_src", ("att_l",), "renamed"),
    _Rule("att_dst", ("att_r",), "renamed"),
    *(
        _Rule(f"{new}.{part}", (f"{old}.{part}",), "renamed")
        for pair in (("lin_l", "lin_rel"), ("lin_r", "lin_root"))
        for new, old in (pair, pair[::-1])
        for part in ("weight", "bias")
    ),
    _Rule("weight", ("basis",), "renamed"),
    _Rule("comp", ("att",), "renamed"),
    _Rule("lins.0.weight", ("weight",), "split and transposed", "{0}[0].t()"),
)
_ENDS = ("lin_src.weight", "lin_dst.weight")


def merged_projections(
    stored: Mapping[str, Tensor], expected: Collection[str]
) -> Mapping[str, Tensor]:
    """Stored parameters with one name for a projection that both ends of GATConv share.

    PyG before 2.5 stored it as ``lin_src`` and as ``lin_dst``; where the two are equal, and the
    module has ``lin`` in their place, nothing else can be meant.
    """
    shared = {name for name in expected if name.endswith("lin.weight")}
    shared -= {name.replace("lin_src.", "lin.") for name in expected if name.endswith(_ENDS[0])}
    for source in [name for name in stored if name.endswith(_ENDS[0])] if shared else []:
        base = source.removesuffix(_ENDS[0])
        other = stored.get(f"{base}lin_dst.weight")
        known = any(f".{base}lin.weight".endswith(f".{name}") for name in shared)
        if known and other is not None and same_values({"": stored[source]}, {"": other}):
            left = {n: of for n, of in stored.items() if n.removeprefix(base) not in _ENDS}
            stored = left | {f"{base}lin.weight": other}
    return stored


def explain_old_names(missing: Collection[str], left: Mapping[str, Tensor]) -> OldNames:
    """Which missing parameters look like stored ones that are left, under their names elsewhere."""
    lines: dict[_Rule, tuple[str, int]] = {}
    explained: set[str] = set()
    for name in missing:
        for rule in _RULES:
            base = name.removesuffix(rule.new)
            old = [f"{base}{one}" for one in rule.old]
            if base == name or base[-1:] not in ("", ".") or not _are_one(old, left):
                continue
            first, count = lines.get(rule, (base, 0))
            lines[rule] = (first, count + 1)
            explained |= {name, *old}
            break
    return OldNames(
        [_sentence(rule, base, count) for rule, (base, count) in lines.items()], explained
    )


def _are_one(names: list[str], left: Mapping[str, Tensor]) -> bool:
    """Whether there are tensors of these names, all with the same values."""
    there = [{"": left[name]} for name in names if name in left]
    return len(there) == len(names) and all(same_values(there[0], one) for one in there)


def _sentence(rule: _Rule, base: str, count: int) -> str:
    old = [f"state[{base + name!r}]" for name in rule.old]
    more = f" (and {count - 1} more alike)" if count > 1 else ""
    return (
        f"{base}{rule.new}: another release of PyG has it as"
        f" {' and '.join(base + name for name in rule.old)}, {rule.word}{more}; convert the file by"
        f" state[{base + rule.new!r}] = {rule.code.format(*old)}"
    )
