"""What ``model.yaml`` calls the activation that a live module of PyG has."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from embertide.models.parts import ActivationOptions

_ACTIVATIONS: dict[type[nn.Module], str] = {
    nn.ReLU: "relu",
    nn.ELU: "elu",
    nn.GELU: "gelu",
    nn.SiLU: "silu",
    nn.Tanh: "tanh",
    nn.Sigmoid: "sigmoid",
    nn.LeakyReLU: "leaky_relu",
}


_FUNCTIONS: dict[Any, str] = {
    **dict.fromkeys((torch.relu, functional.relu), "relu"),
    **dict.fromkeys((torch.tanh, functional.tanh), "tanh"),
    **dict.fromkeys((torch.sigmoid, functional.sigmoid), "sigmoid"),
    **{functional.elu: "elu", functional.gelu: "gelu", functional.silu: "silu"},
    functional.leaky_relu: "leaky_relu",
}


def activation_of(act: Any) -> ActivationOptions | None:
    """An activation's module or function; what is not listed is refused by the options."""
    if act is None:
        return None
    slope = getattr(act, "alpha", getattr(act, "negative_slope", None))
    kind: Any = activation_name(act) or act
    return ActivationOptions(kind=kind, slope=slope)


def activation_name(act: Any) -> str | None:
    """What ``model.yaml`` calls an activation; None of one that it has not."""
    if isinstance(act, nn.Module):
        return _ACTIVATIONS.get(type(act))
    return _FUNCTIONS.get(act)
