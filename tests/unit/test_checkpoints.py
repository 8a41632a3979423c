"""Weights as people save them: checkpoints, prefixes, shards; nothing pickled is run."""

from __future__ import annotations

import argparse
import enum
import io
import json
import os
import pathlib
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from embertide.errors import ModelError, ObjectMissing
from embertide.models.checkpoints import load_checkpoint
from embertide.models.read import read_model
from embertide.models.weight_files import read_weights
from embertide.models.weights import load_tensors
from embertide.tracing.load import load_weights, refuse_types
from tests.support.expected import Expected
from tests.support.models import Files
from tests.support.pyg import pyg

GCN = OrderedDict(
    {
        "layers.0.weight": torch.ones(8, 16),
        "layers.0.bias": torch.full((16,), 2.0),
        "layers.1.weight": torch.full((16, 4), 3.0),
        "layers.1.bias": torch.full((4,), 4.0),
    }
)
TWO_GCN = "library: dgl\nlayers:\n  - {conv: gcn, activation: relu}\n  - {conv: gcn}\n"


def save(value: Any, **options: Any) -> bytes:
    data = io.BytesIO()
    torch.save(value, data, **options)
    return data.getvalue()


def same(loaded: dict[str, torch.Tensor], expected: dict[str, torch.Tensor] = GCN) -> bool:
    return list(loaded) == list(expected) and all(
        torch.equal(loaded[name], expected[name]) for name in expected
    )


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("made-by-the-weights",)


class Settings(dict[str, Any]):
    """As AttributeDict of Lightning."""


class Slots:
    __slots__ = ("a",)

    def __init__(self) -> None:
        self.a = 1


class Colour(enum.Enum):
    RED = 1


def checkpoint(state: Any = GCN, **more: Any) -> dict[str, Any]:
    """What Lightning saves, and what else trainers put beside it."""
    optimizer = torch.optim.Adam([nn.Parameter(torch.ones(3))])
    return {
        "epoch": 3,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": state,
        "optimizer_states": [optimizer.state_dict()],
        "hyper_parameters": Settings(lr=0.1, path=pathlib.PosixPath("/x"), colour=Colour.RED),
        "callbacks": {
            "best": np.float64(0.5),
            "names": {"a", "b"},
            "losses": defaultdict(list, a=[1]),
            "args": argparse.Namespace(lr=1),
            "slots": Slots(),
            "partial": partial(max, 1),
            "array": np.ones(3),
            "type": nn.Linear,
            "dtype": torch.float16,
            "evil": Evil(),
        },
        **more,
    }


def test_a_checkpoint_of_lightning() -> None:
    assert same(load_checkpoint(save(checkpoint()), "last.ckpt"))
    assert not Path("made-by-the-weights").exists()


def test_parameters_and_views() -> None:
    """Stored as torch stores them: several tensors over one storage, parameters, other types."""
    base = torch.arange(12.0).reshape(3, 4)
    state = {
        "a": nn.Parameter(base[1:]),
        "b": base.t(),
        "c": torch.tensor([1, 2]),
        "d": torch.ones(2, dtype=torch.bfloat16),
    }
    assert same(load_checkpoint(save(checkpoint(state)), "last.ckpt"), state)


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model", "module"])
@pytest.mark.parametrize("beside", [{"epoch": 3}, {"args": Settings(a=1)}, {"optimizer": Evil()}])
def test_known_keys(key: str, beside: dict[str, Any]) -> None:
    assert same(load_checkpoint(save({key: GCN} | beside), "best.pt"))
    assert not Path("made-by-the-weights").exists()


def other(state: dict[str, torch.Tensor] = GCN) -> dict[str, torch.Tensor]:
    """Such as averages of the parameters."""
    return {name: value + 1 for name, value in state.items()}


@pytest.mark.parametrize(
    "beside",
    [
        {"model_ema": GCN},
        {"optimizer": {"state": {"exp_avg": other()}}},
        {"decoder": {"weight": torch.ones(8, 16)}},
        {"losses": [torch.ones(3)]},
    ],
)
def test_what_cannot_be_meant_is_no_question(beside: dict[str, Any]) -> None:
    assert same(load_checkpoint(save({"model": GCN} | beside), "best.pt"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("net_g", {"net_g": GCN, "net_d": other()}),
        ("folds.1", {"folds": [other(), GCN]}),
        ("ema.module", {"model": other(), "ema": {"module": GCN}}),
        ("state_dict.ema", {"state_dict": {f"ema.{n}": v for n, v in GCN.items()}}),
        ("ema", {"state_dict": {f"ema.{n}": v for n, v in GCN.items()}}),
        ("ema", {f"ema.{n}": v for n, v in GCN.items()} | {"model.a": torch.ones(1)}),
    ],
)
def test_keys_and_prefixes(key: str, value: dict[str, Any]) -> None:
    assert same(load_checkpoint(save(value), "best.pt", key))


def test_a_key_in_every_kind_of_file() -> None:
    both = {f"{part}.{n}": v for part, of in (("a", other()), ("b", GCN)) for n, v in of.items()}
    yaml = f"key: b\n{TWO_GCN}".encode()
    for name, data in (
        ("model.safetensors", safetensors.torch.save(both)),
        ("model.pt", save(both)),
        ("weights.pt", save({"a": other(), "b": GCN})),
    ):
        program = read_model(folder(**{"model.yaml": yaml, name: data}), "file:///m")
        assert torch.equal(program.params["layers.1.bias"], GCN["layers.1.bias"])


def test_parameters_alone_in_an_old_file() -> None:
    assert same(load_checkpoint(save(GCN, _use_new_zipfile_serialization=False), "old.pt"))


# Files of a model's folder


def folder(**objects: bytes) -> Files:
    return Files({f"file:///m/{name}": data for name, data in objects.items()})


def test_names_of_files() -> None:
    for name, data in (("pytorch_model.bin", save(GCN)), ("model.pt", save(checkpoint()))):
        files = folder(**{"model.yaml": TWO_GCN.encode(), name: data})
        assert read_model(files, "file:///m").output_width == 4
    yaml = b"weights: epoch=3-step=40.ckpt\n" + TWO_GCN.encode()
    files = folder(**{"model.yaml": yaml, "epoch=3-step=40.ckpt": save(checkpoint())})
    assert read_model(files, "file:///m").output_width == 4


def test_nested_prefixes_in_a_described_model() -> None:
    state = {f"_orig_mod.module.model.{name}": value for name, value in GCN.items()}
    files = folder(**{"model.yaml": TWO_GCN.encode(), "model.pt": save(checkpoint(state))})
    program = read_model(files, "file:///m")
    assert torch.equal(
        program.params["_orig_mod.module.model.layers.1.bias"], torch.full((4,), 4.0)
    )


def shards(form: str = "safetensors") -> Files:
    first = dict(list(GCN.items())[:2])
    second = dict(list(GCN.items())[2:])
    write = safetensors.torch.save if form == "safetensors" else save
    stem = "model" if form == "safetensors" else "pytorch_model"
    names = [f"{stem}-0000{i}-of-00002.{form}" for i in (1, 2)]
    places = dict.fromkeys(first, names[0]) | dict.fromkeys(second, names[1])
    index = {"metadata": {"total_size": 1}, "weight_map": places}
    return folder(
        **{
            "model.yaml": TWO_GCN.encode(),
            f"{stem}.{form}.index.json": json.dumps(index).encode(),
            names[0]: write(first),
            names[1]: write(second),
        }
    )


@pytest.mark.parametrize("form", ["safetensors", "bin"])
def test_shards(form: str) -> None:
    files = shards(form)
    program = read_model(files, "file:///m")
    assert torch.equal(program.params["layers.1.weight"], torch.full((4, 16), 3.0))
    (second,) = (uri for uri in files.objects if "00002-of" in uri)
    changed = dict(list(GCN.items())[2:]) | {"layers.1.bias": torch.zeros(4)}
    files.objects[second] = (safetensors.torch.save if form == "safetensors" else save)(changed)
    assert read_model(files, "file:///m").digest != program.digest


# Into a module


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(3, 2)
        self.norm = nn.BatchNorm1d(2)


@pytest.mark.parametrize(
    "prefix", ["", "module.", "model.", "_orig_mod.", "_orig_mod.module.model.", "net.encoder."]
)
@pytest.mark.parametrize("others", [{}, {"loss.weight": torch.ones(3)}])
def test_prefixes(prefix: str, others: dict[str, torch.Tensor]) -> None:
    trained, module = Net(), Net()
    if prefix in ("", "_orig_mod."):
        others = {}  # among names without another prefix they are refused, see REFUSED
    stored = {f"{prefix}{name}": value for name, value in trained.state_dict().items()}
    load_weights(module, others | stored, "last.ckpt")
    assert same(module.state_dict(), trained.state_dict())


def test_wrappers_within_names() -> None:
    trained, module = Net(), Net()
    stored = {
        name.replace("lin.", "lin._orig_mod."): value
        for name, value in trained.state_dict().items()
    }
    load_weights(module, stored, "last.ckpt")
    assert same(module.state_dict(), trained.state_dict())


class Ordered(Net):
    """With a buffer of indices."""

    order: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("order", torch.tensor([1, 0]))


def test_values_are_loaded_into_a_module_without_any() -> None:
    with torch.device("meta"):
        module = Net()
    stored = Net().state_dict() | {"norm.weight": torch.ones(2), "norm.bias": torch.zeros(2)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, that nothing is copied
        load_weights(module, stored, "w.pt")


def test_types_that_hold_the_same_values() -> None:
    state = Ordered().state_dict()
    load_weights(Ordered(), {name: value.double() for name, value in state.items()}, "w.pt")
    load_weights(Ordered(), state | {"order": torch.tensor([1, 0]).char()}, "w.pt")


class Tied(nn.Module):
    """Two names for one matrix, and one layer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.b.weight = self.a.weight
        self.first = self.second = nn.Linear(3, 2)


@pytest.mark.parametrize("prefix", ["", "model."])
def test_one_name_of_tied_parameters_is_enough(prefix: str, tmp_path: Path) -> None:
    trained, module = Tied(), Tied()
    whole = nn.ModuleDict({"model": trained}) if prefix else trained
    file = tmp_path / "w.safetensors"
    safetensors.torch.save_model(whole, str(file))
    load_weights(module, safetensors.torch.load(file.read_bytes()), "w.safetensors")
    assert same(module.state_dict(), trained.state_dict())


def test_names_that_save_model_leaves_out_in_a_described_model(tmp_path: Path) -> None:
    layer = nn.ParameterDict({"weight": torch.full((4, 4), 3.0), "bias": torch.ones(4)})
    file = tmp_path / "w.safetensors"
    module = nn.ModuleDict({"layers": nn.ModuleList([layer, layer])})
    safetensors.torch.save_model(module, str(file))
    objects = {"model.yaml": TWO_GCN.encode(), "model.safetensors": file.read_bytes()}
    program = read_model(folder(**objects), "file:///m")
    assert torch.equal(program.params["layers.1.weight"], program.params["layers.0.weight"])


def test_counts_of_batches_are_not_needed() -> None:
    stored = Net().state_dict()
    del stored["norm.num_batches_tracked"]
    load_weights(Net(), stored, "w.pt")
    load_weights(Net(), {f"model.{name}": value for name, value in stored.items()}, "w.pt")


# Names of other releases of PyG


class Convs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gat = pyg.GATConv(5, 4, heads=2)
        self.conv = pyg.GraphConv(8, 3)


def renamed(changes: dict[str, dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """The parameters, some in place of others."""
    stored = Convs().state_dict()
    for name, new in changes.items():
        del stored[name]
        stored |= new
    return stored


@pytest.mark.parametrize("prefix", ["", "model."])
def test_a_projection_that_was_stored_twice(prefix: str) -> None:
    weight = torch.rand(8, 5)
    old = renamed({"gat.lin.weight": {f"gat.lin_{end}.weight": weight for end in ("src", "dst")}})
    module = Convs()
    load_weights(module, {f"{prefix}{name}": value for name, value in old.items()}, "w.pt")
    assert torch.equal(module.state_dict()["gat.lin.weight"], weight)


# What is refused


def scripted() -> bytes:
    script = io.BytesIO()
    torch.jit.save(torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2)), script)
    return script.getvalue()


def beside(**more: Any) -> Callable[[], object]:
    """A checkpoint with other parameters of the same names in it."""
    return lambda: load_checkpoint(save(more), "best.pt")


def read_shards(second: dict[str, torch.Tensor] | None) -> object:
    files = shards()
    (uri,) = (uri for uri in files.objects if "00002-of" in uri)
    del files.objects[uri]
    if second is not None:
        files.objects[uri] = safetensors.torch.save(second)
    return read_weights(files, "file:///m/model.safetensors.index.json")  # type: ignore[arg-type]


def read_index(index: bytes) -> Callable[[], object]:
    uri = "file:///m/model.safetensors.index.json"
    files: Any = Files({uri: index})
    return lambda: read_weights(files, uri)


def changed(**tensors: torch.Tensor) -> Callable[[], object]:
    """Other tensors for parameters of a module, whose dots are two underscores here."""
    new = {name.replace("__", "."): value for name, value in tensors.items()}
    return lambda: load_weights(Ordered(), Ordered().state_dict() | new, "w.pt")


def without_values() -> Net:
    with torch.device("meta"):
        return Net()


def integral(name: str, register: str) -> Callable[[], object]:
    """A module with integers as a parameter, or as a buffer."""
    module = Ordered()
    values = getattr(module.lin, name).detach().long()
    delattr(module.lin, name)
    if register == "buffer":
        module.lin.register_buffer(name, values)
    else:
        setattr(module.lin, name, nn.Parameter(values, requires_grad=False))
    return lambda: refuse_types(module)


def two_for_one() -> object:
    stored = {name: value.clone() for name, value in Tied().state_dict().items()}
    stored["b.weight"] += 1
    return load_weights(Tied(), stored, "w.safetensors")


def averaged(average: str) -> Callable[[], object]:
    """Averages of the parameters under another prefix; ``squashed`` as some trainers name their
    buffers, which may have no dots."""
    state = Net().state_dict()
    stored = {f"model.{name}": value for name, value in state.items()}
    for name, value in state.items():
        if value.is_floating_point() and "running" not in name:
            new = f"ema.{name.replace('.', '')}" if average == "squashed" else average.format(name)
            stored[new] = value + 1
    return lambda: load_weights(Net(), stored, "last.ckpt")


def of_another_release(**changes: dict[str, torch.Tensor]) -> Callable[[], object]:
    names = {name.replace("__", "."): new for name, new in changes.items()}
    return lambda: load_weights(Convs(), renamed(names), "w.pt")


class Maker:
    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (GCN,)


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n"
LEFT_AND_RIGHT = dict.fromkeys(("gat.lin_l.weight", "gat.lin_r.weight"), torch.ones(8, 5))
PACKED = {"lin._packed_params.dtype": torch.qint8, "lin._packed_params._packed_params": (1,)}

REFUSED: dict[str, Callable[[], object]] = {
    "two known keys": lambda: load_checkpoint(save(checkpoint(model=GCN)), "best.pt"),
    "no parameters under a known key": lambda: load_checkpoint(save(checkpoint(None)), "best.pt"),
    "an object among the parameters": lambda: load_checkpoint(
        save(checkpoint({"a": torch.ones(1), "b": Evil()})), "best.pt"
    ),
    "an object beside parameters": lambda: load_checkpoint(save(GCN | {"extra": Evil()}), "b.pt"),
    "a module": lambda: load_checkpoint(save(nn.Linear(2, 2)), "best.pt"),
    "an object": lambda: load_checkpoint(save(Evil()), "best.pt"),
    "a list": lambda: load_checkpoint(save([Evil()]), "best.pt"),
    "timm's averages": beside(state_dict=GCN, state_dict_ema=other()),
    "a model and averages": beside(model=GCN, ema=other(), epoch=1),
    "averages within": beside(model=GCN, ema={"decay": 0.9, "module": other()}),
    "averages as a list": beside(model=GCN, ema={"shadow_params": list(other().values())}),
    "averages in a callback": beside(
        state_dict=GCN, callbacks={"EMA": {"averaged": other()}}, args=Evil()
    ),
    "a teacher with another prefix": beside(
        state_dict={f"model.{n}": v for n, v in GCN.items()}, teacher=other()
    ),
    "a reducer that makes the state_dict": beside(state_dict=Maker(), epoch=Evil()),
    "an old file with objects": lambda: load_checkpoint(
        save(checkpoint(), _use_new_zipfile_serialization=False), "old.pt"
    ),
    "a script": lambda: load_checkpoint(scripted(), "script.pt"),
    "a pointer of Git LFS as a state_dict": lambda: load_tensors(LFS, "w.pt"),
    "a pointer of Git LFS as safetensors": lambda: load_tensors(LFS, "w.safetensors"),
    "the begin of a checkpoint": lambda: load_checkpoint(save(checkpoint())[:100], "last.ckpt"),
    "a checkpoint without its end": lambda: load_checkpoint(save(checkpoint())[:-50], "last.ckpt"),
    "a shard that is not there": lambda: read_shards(None),
    "a shard that lacks a parameter": lambda: read_shards({"layers.1.weight": torch.ones(1)}),
    "a shard with more parameters": lambda: read_shards(dict(GCN)),
    "an index that ends early": read_index(b"{"),
    "an index that is a list": read_index(b"[]"),
    "an index of nothing": read_index(b"{}"),
    "an index without names": read_index(b'{"weight_map": {}}'),
    "an index with a number": read_index(b'{"weight_map": {"a": 3}}'),
    "an index of another folder": read_index(b'{"weight_map": {"a": "../secret.safetensors"}}'),
    "an index of the folder above": read_index(b'{"weight_map": {"a": ".."}}'),
    "parameters of another module": lambda: load_weights(
        Net(), Net().state_dict() | {"loss.weight": torch.ones(3)}, "last.ckpt"
    ),
    "parameters of another module beside compiled ones": lambda: load_weights(
        Net(),
        {f"_orig_mod.{n}": v for n, v in Net().state_dict().items()}
        | {"loss.weight": torch.ones(3)},
        "last.ckpt",
    ),
    "int8": changed(lin__weight=torch.ones(2, 3).char()),
    "int8 with its scale": changed(
        lin__weight=torch.ones(2, 3).char(), lin__weight_scale=torch.ones(2)
    ),
    "int64": changed(lin__bias=torch.ones(2, dtype=torch.int64)),
    "bool": changed(norm__weight=torch.ones(2, dtype=torch.bool)),
    "complex": changed(lin__weight=torch.ones(2, 3) + 1j),
    "float8": changed(lin__weight=torch.ones(2, 3).to(torch.float8_e5m2)),
    "integers as statistics": changed(norm__running_var=torch.ones(2).int()),
    "no values": changed(lin__weight=torch.empty(2, 3, device="meta")),
    "sparse": changed(lin__weight=torch.ones(2, 3).to_sparse()),
    "halves as an index": changed(order=torch.tensor([0.5, 1.0])),
    "packed integers": lambda: load_weights(
        Net(),
        {n: v for n, v in Net().state_dict().items() if n != "lin.weight"}
        | {"lin.qweight": torch.ones(2, 1).int(), "lin.scales": torch.ones(2)},
        "w.pt",
    ),
    "a quantised layer": lambda: load_checkpoint(save(PACKED), "w.pt"),
    "a quantised layer in a checkpoint": beside(state_dict=PACKED),
    "a module without values": lambda: refuse_types(without_values()),
    **{
        f"integers as the {register} {name}": integral(name, register)
        for name in ("weight", "bias")
        for register in ("parameter", "buffer")
    },
    "a quantised module": lambda: refuse_types(
        torch.ao.quantization.quantize_dynamic(Net(), {nn.Linear})
    ),
    "two tensors for one": two_for_one,
    "two projections for one": lambda: load_weights(
        Convs(),
        renamed(
            {
                "gat.lin.weight": {
                    "gat.lin_src.weight": torch.ones(8, 5),
                    "gat.lin_dst.weight": torch.zeros(8, 5),
                }
            }
        ),
        "w.pt",
    ),
    "GATConv of 1.x": of_another_release(
        gat__lin__weight={"gat.weight": torch.ones(5, 8)},
        gat__att_src={"gat.att": torch.ones(1, 2, 8)},
        gat__att_dst={},
    ),
    "GATConv of 1.7": of_another_release(
        gat__lin__weight=LEFT_AND_RIGHT,
        gat__att_src={"gat.att_l": torch.ones(1, 2, 4)},
        gat__att_dst={"gat.att_r": torch.ones(1, 2, 4)},
    ),
    "GraphConv of 1.x": of_another_release(
        conv__lin_rel__weight={"conv.weight": torch.ones(8, 3)},
        conv__lin_rel__bias={"conv.lin.bias": torch.ones(3)},
        conv__lin_root__weight={"conv.lin.weight": torch.ones(3, 8)},
    ),
    "averages under ema": averaged("ema.{}"),
    "averages under ema.module": averaged("ema.module.{}"),
    "averages without dots": averaged("squashed"),
    "a module that is there twice": lambda: load_weights(
        Net(),
        {f"{part}.{n}": v for part in ("model", "ema") for n, v in Net().state_dict().items()},
        "last.ckpt",
    ),
}


@pytest.mark.tier(1)
@pytest.mark.filterwarnings("ignore:.torch.jit:FutureWarning")
@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
@pytest.mark.filterwarnings("ignore:.*quantized tensor creation:UserWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, expected: Expected) -> None:
    with pytest.raises((ModelError, ObjectMissing)) as caught:
        REFUSED[name]()
    assert not Path("made-by-the-weights").exists()
    expected.check("checkpoints.txt", name, str(caught.value), REFUSED)
