"""Weights as people save them: checkpoints, prefixes, shards; nothing pickled is run."""

from __future__ import annotations

import argparse
import enum
import io
import json
import os
import pathlib
import re
import warnings
from collections import OrderedDict, defaultdict
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


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (checkpoint(model=GCN), "holds several state_dicts: state_dict, model; name the one"),
        (
            checkpoint(state=None),
            "holds more than parameters: epoch, pytorch-lightning_version, st",
        ),
        (checkpoint(state={"a": torch.ones(1), "b": Evil()}), "holds more than parameters: epoch"),
        (GCN | {"extra": Evil()}, "holds more than parameters: extra, and no state_dict under"),
        (nn.Linear(2, 2), "no state_dict that can be read without running code"),
        (Evil(), "no state_dict that can be read without running code"),
        ([Evil()], "holds a list, not a state_dict"),
    ],
)
def test_what_is_no_state_dict(value: Any, says: str) -> None:
    with pytest.raises(ModelError) as caught:
        load_checkpoint(save(value), "best.pt")
    assert says in str(caught.value)
    assert not Path("made-by-the-weights").exists()


def other(state: dict[str, torch.Tensor] = GCN) -> dict[str, torch.Tensor]:
    """Such as averages of the parameters."""
    return {name: value + 1 for name, value in state.items()}


BESIDE: dict[str, tuple[dict[str, Any], str]] = {
    "timm": ({"state_dict": GCN, "state_dict_ema": other()}, "state_dict, state_dict_ema"),
    "model and ema": ({"model": GCN, "ema": other(), "epoch": 1}, "model, ema"),
    "within": ({"model": GCN, "ema": {"decay": 0.9, "module": other()}}, "model, ema.module"),
    "as a list": (
        {"model": GCN, "ema": {"shadow_params": list(other().values())}},
        "model, ema.shadow_params",
    ),
    "in a callback": (
        {"state_dict": GCN, "callbacks": {"EMA": {"averaged": other()}}, "args": Evil()},
        "state_dict, callbacks.EMA.averaged",
    ),
    "other prefix": (
        {"state_dict": {f"model.{n}": v for n, v in GCN.items()}, "teacher": other()},
        "state_dict, teacher",
    ),
}


@pytest.mark.parametrize("case", BESIDE)
def test_averages_beside_the_parameters_are_a_question(case: str) -> None:
    value, places = BESIDE[case]
    with pytest.raises(ModelError, match=f"holds several state_dicts: {places}; name the one"):
        load_checkpoint(save(value), "best.pt")


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


def test_a_reducer_that_makes_the_state_dict_is_not_called() -> None:
    class Maker:
        def __reduce__(self) -> tuple[Any, ...]:
            return dict, (GCN,)

    with pytest.raises(ModelError, match="holds more than parameters: state_dict, epoch"):
        load_checkpoint(save({"state_dict": Maker(), "epoch": Evil()}), "best.pt")


@pytest.mark.filterwarnings("ignore:.torch.jit:FutureWarning")
def test_old_files_and_scripts_are_refused() -> None:
    old = save(checkpoint(), _use_new_zipfile_serialization=False)
    with pytest.raises(ModelError, match="without running code from it"):
        load_checkpoint(old, "old.pt")
    assert same(load_checkpoint(save(GCN, _use_new_zipfile_serialization=False), "old.pt"))
    script = io.BytesIO()
    torch.jit.save(torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2)), script)
    with pytest.raises(
        ModelError, match=r"is TorchScript.*torch\.jit\.load\(file\)\.state_dict\(\)"
    ):
        load_checkpoint(script.getvalue(), "script.pt")


@pytest.mark.parametrize("source", ["w.pt", "w.safetensors"])
def test_a_pointer_of_git_lfs(source: str) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n"
    with pytest.raises(ModelError, match=r"w\.\w+ is a pointer of Git LFS.*; git lfs pull"):
        load_tensors(pointer, source)


@pytest.mark.parametrize("keep", [100, -50])
def test_a_damaged_checkpoint(keep: int) -> None:
    with pytest.raises(ModelError, match="is damaged, or no state_dict"):
        load_checkpoint(save(checkpoint())[:keep], "last.ckpt")


# Files of a model's folder


def folder(**objects: bytes) -> Files:
    return Files({f"file:///m/{name}": data for name, data in objects.items()})


def test_names_of_files() -> None:
    for name, data in (
        ("pytorch_model.bin", save(GCN)),
        ("model.pt", save(checkpoint())),
    ):
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


SECOND = "file:///m/model-00002-of-00002.safetensors"


def test_shards_that_differ_from_their_index() -> None:
    uri = "file:///m/model.safetensors.index.json"
    files = shards()
    del files.objects[SECOND]
    with pytest.raises(ObjectMissing, match="00002-of-00002"):
        read_weights(files, uri)  # type: ignore[arg-type]
    files.objects[SECOND] = safetensors.torch.save({"layers.1.weight": torch.ones(1)})
    with pytest.raises(
        ModelError, match=r"00002-of-00002.safetensors lacks layers.1.bias, against"
    ):
        read_weights(files, uri)  # type: ignore[arg-type]
    files.objects[SECOND] = safetensors.torch.save(dict(GCN))
    with pytest.raises(ModelError, match=r"also holds layers.0.bias, layers.0.weight, against"):
        read_weights(files, uri)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "index",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"weight_map": {}}',
        b'{"weight_map": {"a": 3}}',
        b'{"weight_map": {"a": "../secret.safetensors"}}',
        b'{"weight_map": {"a": ".."}}',
    ],
)
def test_a_bad_index(index: bytes) -> None:
    files = folder(**{"model.safetensors.index.json": index})
    with pytest.raises(ModelError, match="is no index of weights: it must be json with weight_map"):
        read_weights(files, "file:///m/model.safetensors.index.json")  # type: ignore[arg-type]


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
    stored = {f"{prefix}{name}": value for name, value in trained.state_dict().items()}
    if others and prefix in ("", "_orig_mod."):
        with pytest.raises(ModelError, match=r"loss.weight: unknown to the module"):
            load_weights(module, stored | others, "last.ckpt")
        return
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


TYPES: dict[str, tuple[dict[str, torch.Tensor], str]] = {
    "int8": ({"lin.weight": torch.ones(2, 3, dtype=torch.int8)}, "lin.weight is torch.int8"),
    "int8 with its scale": (
        {"lin.weight": torch.ones(2, 3).char(), "lin.weight_scale": torch.ones(2)},
        r"Integers .* with their scale: .* \(here perhaps lin.weight_scale\)",
    ),
    "int64": ({"lin.bias": torch.ones(2, dtype=torch.int64)}, "lin.bias is torch.int64"),
    "bool": ({"norm.weight": torch.ones(2, dtype=torch.bool)}, "norm.weight is torch.bool"),
    "complex": ({"lin.weight": torch.ones(2, 3) + 1j}, "lin.weight is torch.complex64"),
    "float8": (
        {"lin.weight": torch.ones(2, 3).to(torch.float8_e5m2)},
        "lin.weight is torch.float8_e5m2",
    ),
    "statistics": ({"norm.running_var": torch.ones(2).int()}, "running_var is torch.int32"),
    "no values": ({"lin.weight": torch.empty(2, 3, device="meta")}, "is without values"),
    "sparse": ({"lin.weight": torch.ones(2, 3).to_sparse()}, "is sparse, but"),
    "index": ({"order": torch.tensor([0.5, 1.0])}, "order is torch.float32, but torch.int64 in"),
}


class Ordered(Net):
    """With a buffer of indices."""

    order: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("order", torch.tensor([1, 0]))


@pytest.mark.parametrize("case", TYPES)
def test_integers_are_no_weights(case: str) -> None:
    changed, says = TYPES[case]
    with pytest.raises(ModelError, match=says):
        load_weights(Ordered(), Ordered().state_dict() | changed, "w.pt")


def test_packed_integers_are_no_weights() -> None:
    state = Net().state_dict()
    del state["lin.weight"]
    packed = {"lin.qweight": torch.ones(2, 1).int(), "lin.scales": torch.ones(2)}
    with pytest.raises(ModelError, match=r"lin.qweight is torch.int32.*perhaps lin.scales"):
        load_weights(Net(), state | packed, "w.pt")
    dynamic = {"lin._packed_params.dtype": torch.qint8, "lin._packed_params._packed_params": (1,)}
    for value in (dynamic, {"state_dict": dynamic}):
        with pytest.raises(ModelError, match="lin is quantised"):
            load_checkpoint(save(value), "w.pt")


def test_a_module_without_values() -> None:
    with torch.device("meta"):
        module = Net()
    with pytest.raises(ModelError, match=r"Net: lin.weight is without values"):
        refuse_types(module)
    stored = Net().state_dict() | {"norm.weight": torch.ones(2), "norm.bias": torch.zeros(2)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, that nothing is copied
        load_weights(module, stored, "w.pt")


def test_types_that_hold_the_same_values() -> None:
    state = Ordered().state_dict()
    load_weights(Ordered(), {name: value.double() for name, value in state.items()}, "w.pt")
    load_weights(Ordered(), state | {"order": torch.tensor([1, 0]).char()}, "w.pt")


def test_parameters_of_a_module_are_numbers() -> None:
    refuse_types(Ordered())
    for name, says in (("weight", "lin.weight is torch.int64"), ("bias", "lin.bias is torch.int6")):
        for register in ("parameter", "buffer"):
            module = Ordered()
            values = getattr(module.lin, name).detach().long()
            delattr(module.lin, name)
            if register == "buffer":
                module.lin.register_buffer(name, values)
            else:
                setattr(module.lin, name, nn.Parameter(values, requires_grad=False))
            with pytest.raises(ModelError, match=f"Ordered: {says}"):
                refuse_types(module)


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
@pytest.mark.filterwarnings("ignore:.*quantized tensor creation:UserWarning")
def test_a_quantised_module() -> None:
    module = torch.ao.quantization.quantize_dynamic(Net(), {nn.Linear})
    with pytest.raises(ModelError, match=r"Net.lin is a quantised Linear.*before it was quantised"):
        refuse_types(module)


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
    stored = {name: value.clone() for name, value in trained.state_dict().items()}
    stored["b.weight"] += 1
    with pytest.raises(ModelError, match=r"a.weight and b.weight are one tensor in the module"):
        load_weights(module, stored, "w.safetensors")


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
    with pytest.raises(ModelError, match=r"gat.lin_src.weight: unknown to the module"):
        load_weights(module, old | {"gat.lin_dst.weight": weight + 1}, "w.pt")


OLD_NAMES: dict[str, tuple[dict[str, dict[str, torch.Tensor]], list[str]]] = {
    "GATConv of 1.x": (
        {
            "gat.lin.weight": {"gat.weight": torch.ones(5, 8)},
            "gat.att_src": {"gat.att": torch.ones(1, 2, 8)},
            "gat.att_dst": {},
        },
        [
            "gat.lin.weight: another release of PyG has it as gat.weight, transposed; convert the"
            " file by state['gat.lin.weight'] = state['gat.weight'].t()",
            "gat.att_src: another release of PyG has it as gat.att, split;",
        ],
    ),
    "GATConv of 1.7": (
        {
            "gat.lin.weight": dict.fromkeys(
                ("gat.lin_l.weight", "gat.lin_r.weight"), torch.ones(8, 5)
            ),
            "gat.att_src": {"gat.att_l": torch.ones(1, 2, 4)},
            "gat.att_dst": {"gat.att_r": torch.ones(1, 2, 4)},
        },
        [
            "gat.lin.weight: another release of PyG has it as gat.lin_l.weight and"
            " gat.lin_r.weight, merged;",
            "gat.att_dst: another release of PyG has it as gat.att_r, renamed;",
        ],
    ),
    "GraphConv of 1.x": (
        {
            "conv.lin_rel.weight": {"conv.weight": torch.ones(8, 3)},
            "conv.lin_rel.bias": {"conv.lin.bias": torch.ones(3)},
            "conv.lin_root.weight": {"conv.lin.weight": torch.ones(3, 8)},
        },
        [
            "conv.lin_rel.weight: another release of PyG has it as conv.weight, transposed;",
            "conv.lin_root.weight: another release of PyG has it as conv.lin.weight, renamed;",
        ],
    ),
}


@pytest.mark.parametrize("case", OLD_NAMES)
def test_names_of_other_releases_are_explained(case: str) -> None:
    changes, says = OLD_NAMES[case]
    with pytest.raises(ModelError) as caught:
        load_weights(Convs(), renamed(changes), "w.pt")
    assert all(line in str(caught.value) for line in says), str(caught.value)
    assert not re.search("missing|--init", str(caught.value))


@pytest.mark.parametrize("average", ["ema.{}", "ema.module.{}", "squashed"])
def test_averages_under_another_prefix(average: str) -> None:
    state = Net().state_dict()
    stored = {f"model.{name}": value for name, value in state.items()}
    for name, value in state.items():
        if value.is_floating_point() and "running" not in name:
            # As some trainers name their buffers, which may have no dots.
            new = f"ema.{name.replace('.', '')}" if average == "squashed" else average.format(name)
            stored[new] = value + 1
    with pytest.raises(ModelError, match=r"several times: under 'model.', 'ema.'; .*--key ema"):
        load_weights(Net(), stored, "last.ckpt")


def test_a_module_that_is_there_twice() -> None:
    state = Net().state_dict()
    both = {f"{part}.{name}": value for part in ("model", "ema") for name, value in state.items()}
    with pytest.raises(ModelError) as caught:
        load_weights(Net(), both, "last.ckpt")
    assert "last.ckpt holds the module several times: under 'model.', 'ema.'; save the one" in str(
        caught.value
    )
