"""Modules that change edges, count degrees and sum up themselves give, exported, what they give."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from torch import nn

from embertide.errors import ModelError
from embertide.steps import Aggregate, Message
from embertide.tracing.export import Export, export_module
from embertide.tracing.graph_types import named_types
from embertide.tracing.prove.agreement import TOLERANCE
from tests.support.models import Files, shake
from tests.support.pyg import pyg

# First, as it keeps what PyG warns of while it is imported to itself.
assert pyg

from tests.support import export_loops, export_mistakes_loops  # noqa: E402


def exported(module: nn.Module, **more: int) -> Export:
    done = export_module(shake(module), width=5, **more)  # type: ignore[arg-type]
    assert done.proof.largest_error <= TOLERANCE
    return done


@pytest.mark.parametrize("name", export_loops.CASES)
def test_own_code_of_users(name: str) -> None:
    exported(export_loops.CASES[name]())


@pytest.mark.parametrize("name", export_loops.FEATURES)
def test_features_of_new_self_loops(name: str) -> None:
    exported(export_loops.FEATURES[name](), edge_features=3)


def test_factors_of_both_ends_do_not_travel() -> None:
    """The documentation's GCN is a sum over edges of one column for each of the result."""
    steps = exported(export_loops.GCNConv()).exported.program.steps
    (total,) = [step for step in steps if isinstance(step, Aggregate)]
    assert (total.loops, total.norm, total.edge_weight) == ("more", "none", False)
    assert not any(isinstance(step, Message) for step in steps)


def test_self_loops_are_within_one_type() -> None:
    class Between(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.GATConv((5, 4), 3)

        def forward(self, x_dict, edge_index_dict):
            edges, _ = export_loops.add_self_loops(
                edge_index_dict["a", "to", "b"], num_nodes=len(x_dict["a"])
            )
            return {"b": self.conv((x_dict["a"], x_dict["b"]), edges)}

    graph = {"nodes": {"a": 5, "b": 4}, "edges": ["a:to:b"]}
    with pytest.raises(ModelError, match="leads from one node type to another; only edges within"):
        export_module(Between(), graph=named_types(graph, Files()))  # type: ignore[arg-type]


# ---- what goes wrong

FILE = export_mistakes_loops.__file__
LINES = Path(FILE).read_text().splitlines()
AT_A_LINE = {
    "Uncounted": "add_self_loops does not know how many nodes there are, .*give it x.size",
    "Miscounted": r"degree is given 9 nodes, but there are \d+; give x.size",
    "Twice": "add_self_loops of edges with one more self-loop .* add self-loops once",
    "Weights": "add_remaining_self_loops comes after another function that added.*add them once",
    "Filled": "add_self_loops fills in weights by 'mean'; give a number",
    "Kept": "add_remaining_self_loops keeps the features of self-loops.*call remove_self_loops",
    "Computed": "add_self_loops is given edge_attr that is computed.*change edges first",
    "ToSources": r"scatter to the sources of edges is known of ones.*sum up at edge_index\[1\]",
    "Median": "scatter with reduce='mul' is not known; use sum, mean, max or min",
    "Other": "remove_self_loops is known of the job's own edges, of one relation",
    "Mixed": "rows are picked out by number|puts tensors of the relations",
    "AnyEdge": "any and all over a whole tensor look at all rows at once",
    "Laplacian": "ChebConv with normalization=None scales by the largest.*one number as lambda_max",
    "Ends": "a tensor of the edges is returned, or used among those of the nodes; sum it up",
}


@pytest.mark.parametrize("name", AT_A_LINE)
def test_messages_name_the_line(name: str) -> None:
    columns = {"edge_features": 3} if name in ("Kept", "Computed") else {}
    with pytest.raises(ModelError) as caught:
        export_module(shake(getattr(export_mistakes_loops, name)()), width=5, **columns)
    told = " ".join(str(caught.value).split())
    (line,) = [n for n, text in enumerate(LINES, 1) if text.endswith(f"  # {name}")]
    assert told.startswith(f"{FILE}:{line}: ")
    assert re.search(AT_A_LINE[name], told)
