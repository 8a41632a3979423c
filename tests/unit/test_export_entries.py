"""What of a module is exported: in its wrappers, a part, a method; files with several dicts."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from embertide.errors import ModelError
from embertide.io.storage.opening import open_storage
from embertide.models.checkpoints import load_checkpoint
from embertide.models.reference import run_typed_reference
from embertide.models.weight_files import read_weights
from embertide.tracing.export import Export, export_module
from embertide.tracing.load import build, load_weights
from embertide.tracing.prove.agreement import TOLERANCE, layer_graphs
from embertide.tracing.record.graphs import GraphTypes, RandomGraph, random_graph
from tests.support.exact import relative_error
from tests.support.models import shake
from tests.support.pyg import pyg

# First, as it keeps what PyG warns of while it is imported to itself.
assert pyg

WIDTH, OUT = 5, 3


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(WIDTH, OUT)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index).relu()


class Variational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mu, self.logstd = pyg.GCNConv(WIDTH, OUT), pyg.GCNConv(WIDTH, OUT)

    def forward(self, x, edge_index):
        return self.mu(x, edge_index), self.logstd(x, edge_index)


class Passing(nn.Module):
    """A method of ``*args``, passed on to the encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()

    def forward(self, *args):
        return self.encode(*args)

    def encode(self, *args, **kwargs):
        return self.encoder(*args, **kwargs) * 2.0


class Walks(nn.Module):
    """As Node2Vec is called: the rows of its table."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(31, OUT)

    def forward(self, batch=None):
        emb = self.embedding.weight
        return emb if batch is None else emb[batch]


def _corrupt(x, edge_index):
    return x[torch.randperm(len(x))], edge_index


def _mean(z, *_args):
    return z.mean(dim=0).sigmoid()


def doubling(module: nn.Module) -> nn.Module:
    """A module with a hook that doubles what it gives."""
    module.register_forward_hook(lambda _m, _args, out: out * 2)
    return module


MODELS = pyg.models
MADE: dict[str, Any] = {
    "gae": (lambda: MODELS.GAE(Encoder()), "encode"),
    "gae with hooks": (lambda: doubling(MODELS.GAE(Encoder())), "encode"),
    "vgae": (lambda: MODELS.VGAE(Variational()), "encode"),
    "arga": (lambda: MODELS.ARGA(Encoder(), nn.Linear(OUT, 1)), "encode"),
    "argva": (lambda: MODELS.ARGVA(Variational(), nn.Linear(OUT, 1)), "encode"),
    "dgi": (lambda: MODELS.DeepGraphInfomax(OUT, Encoder(), _mean, _corrupt), "encoder"),
    "data parallel": (lambda: nn.DataParallel(Encoder()), "module"),
    "averaged": (lambda: torch.optim.swa_utils.AveragedModel(Encoder()), "module"),
    "compiled": (lambda: torch.compile(Encoder()), "_orig_mod"),
}


def given(done: Export, graph: RandomGraph) -> torch.Tensor:
    """What an exported program gives for a graph."""
    program = done.exported.program
    graphs = layer_graphs(program, graph, weighted=False)
    return run_typed_reference(program, graphs, graph.x, graph.counts)[""]


@pytest.mark.tier(2)
@pytest.mark.parametrize("name", MADE)
def test_embeddings_of_the_libraries_wrappers(name: str) -> None:
    make, method = MADE[name]
    module = shake(make().eval())
    done = export_module(module)
    assert done.proof.largest_error <= TOLERANCE
    graph = random_graph(GraphTypes({"": WIDTH}), 20, seed=4)
    with torch.no_grad():
        own = getattr(module.double(), method)(graph.x[""], graph.edges[""].edge_index)
    assert relative_error(given(done, graph), own) <= 1e-6


@pytest.mark.parametrize("name", ["data parallel", "averaged", "compiled", "dgi"])
def test_hooks_of_wrappers_are_refused(name: str) -> None:
    module = doubling(MADE[name][0]())
    with pytest.raises(ModelError) as caught:
        export_module(module)
    text = rf"doubling.*_hook\) of {type(module).__name__} would be left out.*register it on that"
    assert re.search(text, str(caught.value))


def test_rows_of_a_table_alone() -> None:
    done = export_module(Walks(), tables={"": "embedding"})
    graph = random_graph(GraphTypes({"": OUT}), 20, seed=4)
    assert torch.equal(given(done, graph), graph.x[""])


def test_scripted_modules_are_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.Linear(WIDTH, OUT))
    with pytest.raises(ModelError, match=r"scripted.*torch\.jit\.load\(file\)\.state_dict\(\)"):
        export_module(scripted)


def test_arguments_without_names_are_refused() -> None:
    with pytest.raises(ModelError, match=r"takes \*args, which do not show.*FILE\.py:NAME\.PART"):
        export_module(Passing(), width=WIDTH)


# -- what FILE.py:NAME.PART.METHOD names


FILE = """
import torch
from torch import nn
from tests.unit.test_export_entries import Encoder, Passing


class Trainer(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.head = Passing(), nn.Linear(3, 2)
        self.rate = 0.1

    def forward(self, x, edge_index):
        return self.head(self.net.encode(x, edge_index))
"""


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's file; one, as Python imports a name once."""
    file = tmp_path_factory.mktemp("entries") / "entries_of_a_trainer.py"
    file.write_text(FILE)
    return file


@pytest.mark.parametrize(
    ("path", "kind"),
    [("net.encode", "Passing"), ("net.encoder", "Encoder"), ("net.encoder.forward", "Encoder")],
)
def test_a_part_of_a_module_and_its_methods(trainer: Path, path: str, kind: str) -> None:
    whole = build(f"{trainer}:Trainer", {})
    part = build(f"{trainer}:Trainer.{path}", {})
    load_weights(part, whole.state_dict(), "whole.pt")
    done = export_module(part, width=WIDTH)
    assert done.exported.module == kind
    graph = random_graph(GraphTypes({"": WIDTH}), 20, seed=4)
    with torch.no_grad():
        own: Any = whole.double()
        for name in path.split("."):
            own = getattr(own, name)
        expected = own(graph.x[""], graph.edges[""].edge_index)
    assert relative_error(given(done, graph), expected) <= 1e-6


@pytest.mark.parametrize("path", ["embed", "rate", "net.decode"])
def test_what_is_no_part(trainer: Path, path: str) -> None:
    name = path.rpartition(".")[2]
    with pytest.raises(ModelError, match=rf"Trainer has no method or module {name}"):
        build(f"{trainer}:Trainer.{path}", {})


# -- --key


def stored(content: Any, tmp_path: Path) -> bytes:
    torch.save(content, tmp_path / "file.pt")
    return (tmp_path / "file.pt").read_bytes()


def test_a_state_dict_under_a_key(tmp_path: Path) -> None:
    state, other = nn.Linear(2, 2).state_dict(), nn.Linear(2, 3).state_dict()
    data = stored({"model": other, "ema": {"shadow.params": state}, "epoch": 3}, tmp_path)
    found = load_checkpoint(data, "file.pt", "ema.shadow.params")
    assert {name: value.tolist() for name, value in found.items()} == {
        name: value.tolist() for name, value in state.items()
    }
    assert load_checkpoint(data, "file.pt").keys() == other.keys()
    told = r"nothing under --key ema\.params; at params there are shadow\.params"
    with pytest.raises(ModelError, match=told):
        load_checkpoint(data, "file.pt", "ema.params")
    with pytest.raises(ModelError, match=r"at x there are no keys"):
        load_checkpoint(data, "file.pt", "epoch.x")
    (tmp_path / "file.safetensors").write_bytes(safetensors.torch.save(state))
    with pytest.raises(ModelError, match=r"nothing under --key ema; at ema there are \w+, \w+"):
        read_weights(open_storage(), f"file://{tmp_path}/file.safetensors", "ema")


def test_several_state_dicts_ask_for_a_key(tmp_path: Path) -> None:
    state = nn.Linear(2, 2).state_dict()
    data = stored({"model": state, "state_dict": state}, tmp_path)
    with pytest.raises(ModelError, match=r"several state_dicts.*--key"):
        load_checkpoint(data, "file.pt")
    data = stored({"online": state, "target": state, "meta": json.dumps({})}, tmp_path)
    with pytest.raises(ModelError, match=r"online, target, meta.*--key"):
        load_checkpoint(data, "file.pt")
