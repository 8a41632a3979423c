"""Weights as people save them: checkpoints, prefixes, shards; nothing pickled is run."""

from __future__ import annotations

import argparse
import enum
import io
import json
import os
import pathlib
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
from embertide.tracing.load import load_weights
from tests.support.models import Files

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


def test_a_module_that_is_there_twice() -> None:
    state = Net().state_dict()
    both = {f"{part}.{name}": value for part in ("model", "ema") for name, value in state.items()}
    with pytest.raises(ModelError) as caught:
        load_weights(Net(), both, "last.ckpt")
    assert "last.ckpt holds the module several times: under 'model.', 'ema.'; save the one" in str(
        caught.value
    )
