"""Torch's names of functions on rows, by their names in a line."""

from __future__ import annotations

UNARY = (
    *("abs", "cos", "erf", "exp", "expm1", "log", "log1p", "neg", "reciprocal", "rsqrt", "sign"),
    *("sin", "sqrt", "square", "sigmoid", "tanh", "logical_not", "relu", "silu", "relu6", "selu"),
    *("celu", "elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid"),
    *("mish", "prelu", "softplus", "softsign", "tanhshrink", "log_sigmoid", "floor", "trunc"),
    *("long", "int", "__invert__", "bitwise_not"),
)
NAMED = {
    **{"log_sigmoid": "logsigmoid", "long": "trunc", "int": "trunc"},
    **{"__invert__": "logical_not", "bitwise_not": "logical_not"},
}
BINARY = {
    **{name: name for name in ("maximum", "minimum", "pow", "eq", "ne", "lt", "le", "gt", "ge")},
    **{name: name for name in ("logical_and", "logical_or", "add", "sub", "mul", "div")},
    **{
        "__eq__": "eq",
        "__ne__": "ne",
        "__radd__": "add",
        "multiply": "mul",
        "__rmul__": "mul",
        "true_divide": "div",
    },
    **{"divide": "div", "subtract": "sub"},
    **dict.fromkeys(("__and__", "__rand__", "bitwise_and"), "logical_and"),
    **dict.fromkeys(("__or__", "__ror__", "bitwise_or"), "logical_or"),
    **dict.fromkeys(("__xor__", "__rxor__", "bitwise_xor", "logical_xor"), "ne"),
}
REFLECTED = {"rsub": "sub", "__rsub__": "sub", "__rdiv__": "div", "__rpow__": "pow"}
REDUCTIONS = {
    **{name: name for name in ("sum", "mean", "prod", "amax", "amin", "logsumexp", "std", "var")},
    **{"max": "amax", "min": "amin"},
}
WITHIN = ("softmax", "log_softmax")
SAME = (
    *("contiguous", "clone", "detach", "data", "to", "float", "double", "cpu", "type_as"),
    *("dropout", "feature_dropout"),
)
SHAPES = (
    "view",
    "reshape",
    "flatten",
    "unflatten",
    "squeeze",
    "unsqueeze",
    "view_as",
    "reshape_as",
)
