"""Learn and rank links: what training scripts of the examples share."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy, normalize

TEMPERATURE = 0.1
"""What cosines are divided by before the softmax over one right end and all others."""


def contrast(one: torch.Tensor, other: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
    """Return the loss of picking the right row of ``other`` among those of all pairs.

    So a node is a wrong answer as often as it is a right one, and being popular does not help.
    """
    scores = one[pairs[0]] @ other[pairs[1]].T / TEMPERATURE
    also_right = pairs[1][:, None] == pairs[1]
    also_right.fill_diagonal_(False)
    return cross_entropy(scores.masked_fill(also_right, -torch.inf), torch.arange(len(scores)))


def ranks(
    z: torch.Tensor,
    popularity: torch.Tensor,
    questions: torch.Tensor,
    known: torch.Tensor,
    temperature: float = TEMPERATURE,
) -> torch.Tensor:
    """Return for each question (node, answer) how many candidates score no less, plus one.

    A candidate's score is its cosine over the temperature, plus the logarithm of its popularity:
    what :func:`contrast` learns is how much likelier an end is than its popularity alone makes it.
    A node and all its known neighbours but the answer are no candidates.

    Args:
        z: [N, D].
        popularity: [N], above 0.
        questions: [2, Q].
        known: [2, E], node -> neighbour, which has the questions.
    """
    z, bias = normalize(z), popularity.log()
    order = known[0].argsort()
    neighbours = known[1][order]
    starts = torch.searchsorted(known[0][order], torch.arange(len(z) + 1))
    found = []
    for node, answer in zip(*(end.split(250) for end in questions), strict=True):
        scores = (z[node] / temperature) @ z.T + bias
        right = scores.gather(1, answer[:, None])
        for row, one in enumerate(node.tolist()):
            scores[row, neighbours[starts[one] : starts[one + 1]]] = -torch.inf
            scores[row, one] = -torch.inf
        found.append(1 + (scores >= right).sum(1))
    return torch.cat(found)


def measures(rank: torch.Tensor) -> dict[str, float]:
    """Return recall@10 and the mean reciprocal rank."""
    return {
        "recall@10": float((rank <= 10).double().mean()),
        "MRR": float((1 / rank.double()).mean()),
    }
