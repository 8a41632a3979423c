"""A relation's matrices of each head, applied at the target and not to the sources' rows.

    (K_r k_j) . q_i = k_j . (K_r^T q_i),    sum_j a_ij V_r v_j = V_r (sum_j a_ij v_j)

So keys and values of a source type are the same for all relations that leave it, and travel once.
"""

from __future__ import annotations

from collections.abc import Sequence

from embertide.models.builder import ProgramBuilder

Heads = tuple[int, int]
"""How many heads, and the columns of each."""


def turned(
    b: ProgramBuilder, query: str, matrix: str, prior: str, heads: Heads, scale: float = 1.0
) -> str:
    """[N, H*D] queries times K_r turned, times a relation's prior.

    Args:
        matrix, prior: parameters [H, D, D] and [H, 1].
        scale: of all scores.
    """
    count, width = heads
    lines = [
        f"apart = reshape(x0, [{count}, {width}])",
        "through = einsum('nhg,hfg->nhf', apart, p0)",
        "weighed = mul(through, p1)",
        f"scaled = mul(weighed, {scale!r})",
        "out = flatten(scaled)",
    ]
    return b.row_wise((query,), tuple(lines), (matrix, prior), count * width)


def merged(
    b: ProgramBuilder, parts: Sequence[str], matrices: Sequence[str | None], heads: Heads
) -> str:
    """[N, H*D] relations' sums, each through its V_r, as one softmax over all edges has them.

    Args:
        parts: [N, H*D + H] sums within a relation, and the logarithms of its scores' sums.
        matrices: the parameter [H, D, D] of each; None where its values have it already.
    """
    (count, width), columns = heads, heads[0] * heads[1]
    lines, sums, logs, params = list[str](), list[str](), list[str](), list[str]()
    for at, matrix in enumerate(matrices):
        lines += [
            f"values{at} = narrow(x{at}, 1, 0, {columns})",
            f"apart{at} = reshape(values{at}, [{count}, {width}])",
            f"log{at} = narrow(x{at}, 1, {columns}, {count})",
        ]
        sums.append(f"apart{at}" if matrix is None else f"sum{at}")
        logs.append(f"log{at}")
        if matrix is not None:
            lines.append(f"sum{at} = einsum('nhf,hfg->nhg', apart{at}, p{len(params)})")
            params.append(matrix)
    lines += [
        f"sums = stack([{', '.join(sums)}], 1)",
        f"logs = stack([{', '.join(logs)}], 1)",
        "softmaxed = softmax(logs, 1)",
        "share = unsqueeze(softmaxed, 3)",
        "weighed = mul(sums, share)",
        "total = sum(weighed, 1)",
        "out = flatten(total)",
    ]
    return b.row_wise(tuple(parts), tuple(lines), tuple(params), columns)
