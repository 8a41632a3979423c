"""Every refusal is one message: the user's line, what is not supported, the change that helps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from torch import nn

from embertide.errors import ModelError
from embertide.tracing.export import export_module
from tests.support import export_refusals as modules

AT_A_LINE = {
    "Sorted": "sort puts numbers in order.*order what is published",
    "TopK": "topk puts numbers in order",
    "Unique": "unique gives a number of rows that depends on values.*return all rows",
    "Masked": "picking rows by a condition gives a number of rows.*return all rows",
    "Listed": "a tensor leaves torch",
    "Numpy": "a tensor leaves torch",
    "OverNodes": r"log_softmax over all rows \(dim=0\) needs the whole.*softmax\(scores, index\)",
    "Multiplied": "prod over all rows needs the whole graph.*mean, sum, max, min, var, std",
    "Quantile": "quantile puts numbers in order",
    "Reversed": "given edges that were changed.*reverse turns edges.*directed: false",
    "Picked": "is given edges that a mask picks.*edge_type == NUMBER.*be their weight",
    "Nearest": "cdist of nodes and nodes.*nearest neighbours before, as the job's edges",
    "Packed": r"take each node's last state: h\[torch.arange\(len\(h\)\), lengths - 1\]",
    "Made": "edges that forward makes itself.*make them before, as its edges or a relation",
    "Both": "given edges that were changed.*directed: false adds the other way",
    "Undirected": "to_undirected adds the edges the other way; say directed: false",
    "Coalesced": "coalesce makes other edges than the job's; change the job's edges before",
    "Dense": "to_dense_adj makes a matrix of all pairs.*propagate",
    "Squared": "a matrix with the nodes in both dimensions.*propagate",
    "Attention": "looks at every pair of rows.*linear attention over all nodes",
    "Encoder": "looks at every pair of rows.*TransformerConv",
    "Gps": "attention over all pairs of nodes, which needs the whole graph.*'performer'",
    "Recurrent": r"LSTM goes over the nodes one after another.*\[steps, N, columns\]",
    "Lstm": "aggregates by LSTMAggregation; known are sum, mean",
    "TopKPooled": "picking rows by a condition",
    "Directed": "given edges that were changed.*reverse turns edges",
    "Unet": "edge weights that are not the graph's own",
    "Categories": "index out of range.*by the number of the column.*--categories ",
    "OneHot": "Class values must be non-negative.*--categories",
    "Untabled": r"emb\.weight has as many rows.*--table",
    "Joined": "tried with features of 12 columns; --width gives another number",
    "WeightMedian": "median over all edges is not known; known are mean, sum, max.*job's files",
    "Edges": "a tensor of the edges is returned.*sum it up at the nodes first",
    "Dicts": "'Tensor' object has no attribute 'items'.*--graph",
    "Labels": "a row for the whole graph is returned.*return what was pooled",
    "HookByKeyword": r"register_forward_pre_hook\) of HookByKeyword failed.*KeyError.*by position",
    "HookLogs": r"leaves torch.*It is in hook .*\(register_forward_hook\) of conv \(SAGEConv\)",
    "Selu": "'Tensor' object has no attribute 'selu'",
}
"""Module -> what its message says, which begins with file and line."""
ANYWHERE = {
    "Alone": r"Alone\.forward has edge_index; it must take the features.*--table emb",
    "Pair": r"returns a float as 'loss'.*FILE\.py:NAME\.METHOD.*--results.*- for one to leave out",
    "Pairs": r"pairs of nodes to score.*FILE\.py:NAME\.METHOD, such as models\.py:Net\.encode",
    "HookWithin": r"\(register_message_forward_hook\) of conv \(SAGEConv\) is not known",
    "HookNotRun": r"forward_hook\) of conv.aggr_module \(MeanAggregation\)\. Do in forward",
    "Positions": "--inputs .*Further columns of the nodes belong to x",
}
"""The same of what no line does."""
INTERNAL = re.compile(r"Traced|Traceback|Node\(|embertide\.tracing|__getitem__|unhashable|NoneType")


def told(name: str) -> str:
    with pytest.raises(ModelError) as caught:
        export_module(getattr(modules, name)())
    return str(caught.value)


@pytest.mark.parametrize("name", AT_A_LINE)
def test_the_message_of_a_line(name: str) -> None:
    text = told(name)
    assert re.match(rf"{re.escape(str(Path(modules.__file__)))}:\d+: ", text)
    assert re.search(AT_A_LINE[name], text, re.DOTALL), text
    assert not INTERNAL.search(text)


@pytest.mark.parametrize("name", ANYWHERE)
def test_the_message_of_a_whole_module(name: str) -> None:
    text = told(name)
    assert re.search(ANYWHERE[name], text, re.DOTALL), text
    assert not INTERNAL.search(text)


def test_every_module_has_a_message() -> None:
    there = {
        name
        for name, one in vars(modules).items()
        if isinstance(one, type) and issubclass(one, nn.Module)
    }
    assert there - {"Base"} == {*AT_A_LINE, *ANYWHERE}
