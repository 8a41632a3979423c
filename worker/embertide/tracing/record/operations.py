"""What may be asked of a recorded tensor, and what decides by its numbers: torch's short names."""

from __future__ import annotations

SHAPES = (
    *("shape", "size", "dim", "ndim", "ndimension", "numel", "nelement", "__len__", "stride"),
    *("dtype", "device", "layout", "names", "type", "is_cuda", "is_cpu", "is_sparse", "is_leaf"),
    *("is_floating_point", "is_contiguous", "is_complex", "is_quantized", "is_nested", "grad_fn"),
    *("requires_grad", "requires_grad_", "element_size", "get_device", "is_signed"),
)
"""What may be asked of a tensor without looking at its numbers."""

SIZES = ("shape", "size", "numel", "nelement", "__len__")
"""What may be asked of a tensor to learn how many rows there are."""

PICKS = (
    *("nonzero", "argwhere", "masked_select", "unique", "unique_consecutive"),
    *("_unique", "_unique2", "unique_dim", "_return_output", "_return_inverse", "_return_counts"),
)
"""Operations whose number of rows depends on the numbers in a tensor."""

SHOWN = ("__repr__", "__format__", "__str__")
"""Printing a tensor, which decides nothing."""

_WORDS = {"__getitem__": "picking rows by a condition", "__setitem__": "an assignment to a part"}


def shown(op: str) -> str:
    """What a message calls an operation."""
    return _WORDS.get(op, op)


REDUCES_ALL = ("max", "min", "amax", "amin", "mean", "sum", "std", "var", "norm", "prod", "median")
"""Reductions, which are over all rows unless they get a dimension of a row."""

DECIDES = {
    "__bool__": "if, while or assert on a tensor",
    "__contains__": "`in` on a tensor",
    **dict.fromkeys(("item", "__float__", "__int__", "__index__"), "a tensor becomes a number"),
    **dict.fromkeys(("tolist", "numpy", "__array__"), "a tensor leaves torch"),
}
SAME_WAY = (
    ", so that what is done depends on the graph; a program does the same for every graph: choose"
    " with torch.where, or decide by an argument of the module"
)

IN_PLACE = (
    *("relu_", "elu_", "leaky_relu_", "silu_", "tanh_", "sigmoid_", "dropout_"),
    *("add_", "sub_", "mul_", "div_", "neg_", "squeeze_", "unsqueeze_", "masked_fill_", "pow_"),
    *("clamp_", "clamp_min_", "clamp_max_", "sqrt_", "rsqrt_", "square_", "abs_", "exp_", "log_"),
    *("reciprocal_",),
)
"""In-place operations that are the same as a new value for the same name."""
