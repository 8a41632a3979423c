"""One softmax over the in-edges of several relations, each with matrices of each head.

    (K_r k_j) . q_i = k_j . (K_r^T q_i),    sum_j a_ij V_r v_j = V_r (sum_j a_ij v_j)

The matrices are applied at the target and not to the sources' rows. So keys and values of a source
type are the same for all relations that leave it, and travel once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from embertide.models.builder import ProgramBuilder
from embertide.spec.relations import Relation

Heads = tuple[int, int]
"""How many heads, and the columns of each."""


@dataclass(frozen=True)
class Along:
    """The tensors that a relation's edges carry.

    Attributes:
        key, value: [N, H*D] of its source type.
        matrices: the parameters K_r [H, D, D], V_r [H, D, D] and prior_r [H, 1]; None where keys
            and values have passed through them.
    """

    relation: Relation
    key: str
    value: str
    matrices: tuple[str, str, str] | None


def attend_relations(
    b: ProgramBuilder, query: str, parts: Sequence[Along], heads: Heads, scale: float
) -> str:
    """[N, H*D] the values of all relations into a node type, weighed by one softmax.

    Args:
        query: [N, H*D] of the node type, which is being written.
        scale: of scores, where a relation has matrices.
    """
    if all(part.matrices is None for part in parts):
        return _in_turn(b, query, parts, heads[0])
    sums, matrices = list[str](), list[str | None]()
    for part in parts:
        with b.over(part.relation):
            own = query
            if part.matrices is not None:
                own = turned(b, query, part.matrices[0], part.matrices[2], heads, scale)
            sums.append(
                b.pair_attend(part.value, own, heads[0], kind="dot", key=part.key, log_sum=True)
            )
        matrices.append(None if part.matrices is None else part.matrices[1])
    return merged(b, sums, matrices, heads)


def _in_turn(b: ProgramBuilder, query: str, parts: Sequence[Along], heads: int) -> str:
    """Each relation's softmax goes on where the one before it ended."""
    made = None
    for at, part in enumerate(parts, 1):
        with b.over(part.relation):
            made = b.pair_attend(
                part.value,
                query,
                heads,
                kind="dot",
                key=part.key,
                before=made,
                log_sum=at < len(parts),
            )
    assert made is not None
    return made


def turned(
    b: ProgramBuilder, query: str, matrix: str, prior: str, heads: Heads, scale: float
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
