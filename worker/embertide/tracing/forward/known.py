"""Which modules are known as a whole."""

from __future__ import annotations

from torch import Tensor, nn

from embertide.models.kinds import KNOWN
from embertide.models.known_modules import KnownModule
from embertide.tracing.forward.hooks import has_hooks

_TABLES = {"torch_geometric": KNOWN["pyg"], "dgl": KNOWN["dgl"]}
_HOOKS = (
    *("forward", "message", "aggregate", "update", "propagate"),
    *("message_and_aggregate", "edge_update"),
)


def known(module: nn.Module) -> KnownModule | None:
    """What is known of a module; None for a subclass that computes something else."""
    for kind in type(module).__mro__:
        entry = _TABLES.get(kind.__module__.partition(".")[0], {}).get(kind.__name__)
        if entry is not None:
            return entry if _unchanged(type(module), kind) else None
    return None


def has_other_parts(module: nn.Module) -> bool:
    """Whether a part has hooks or computes its weight, or is no library's, such as LoRA.

    Then the parameters are not those of the convolution, which is recorded by what it does.
    """
    return any(
        type(part).__module__.partition(".")[0] not in ("torch", *_TABLES)
        or _computes(part)
        or has_hooks(part)
        for part in module.modules()
        if part is not module
    )


def _computes(part: nn.Module) -> bool:
    """Whether a weight is computed from other parameters: weight_norm, parametrizations."""
    weight = getattr(part, "weight", None)
    return isinstance(weight, Tensor) and "weight" not in part.state_dict(keep_vars=True)


def _unchanged(kind: type, base: type) -> bool:
    return all(getattr(kind, name, None) is getattr(base, name, None) for name in _HOOKS)
