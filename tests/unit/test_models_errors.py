"""What a wrong model.yaml or wrong weights say."""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from embertide.errors import ModelError, ObjectMissing
from embertide.models.read import read_model
from embertide.program.steps import Program
from tests.support.expected import Expected, inputs
from tests.support.models import Files, program_of

GCN = {
    "layers.0.weight": torch.ones(8, 16),
    "layers.0.bias": torch.ones(16),
    "layers.1.weight": torch.ones(16, 4),
    "layers.1.bias": torch.ones(4),
}
TWO_GCN = "library: dgl\nlayers:\n  - {conv: gcn, activation: relu}\n  - {conv: gcn}\n"
SAGE = {
    f"convs.0.convs.<{relation}>.{name}": torch.ones(shape)
    for relation, source, target in (
        ("user___buys___item", 7, 5),
        ("item___bought_by___user", 5, 7),
    )
    for name, shape in (
        ("lin_l.weight", (4, source)),
        ("lin_l.bias", (4,)),
        ("lin_r.weight", (4, target)),
    )
}
SETS = {
    "gcn": GCN,
    "sage": SAGE,
    "one": {"conv.lin.weight": torch.ones(4, 5), "conv.bias": torch.ones(4)},
}


def read(yaml: str, tensors: dict[str, torch.Tensor]) -> Program:
    files = Files({"file:///m/model.yaml": yaml.encode()})
    files.write("file:///m/weights.safetensors", safetensors.torch.save(tensors))
    return read_model(files, "file:///m")


# Descriptions, names and shapes


def weights(lines: list[str]) -> dict[str, torch.Tensor]:
    """A line is a set of ``SETS``, or a tensor: its name, shape, and what it holds but ones in
    float32: zeros, nan, or a type."""
    tensors: dict[str, torch.Tensor] = {}
    for line in lines:
        found = re.fullmatch(r"(\S+) (\[.*\]) ?(\w*)", line)
        if found is None:
            tensors |= SETS[line]
            continue
        ones = torch.ones(json.loads(found[2]))
        fill = {"": 1.0, "zeros": 0.0, "nan": torch.nan}.get(found[3])
        tensors[found[1]] = ones.to(getattr(torch, found[3])) if fill is None else ones * fill
    return tensors


MODELS = inputs("models.txt")


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_refused(name: str, expected: Expected) -> None:
    """Its model.yaml, the weights beside it after ``@``, and what is said of them."""
    lines = MODELS[name].splitlines()
    yaml = "\n".join(line for line in lines if not line.startswith("@ "))
    tensors = weights([line.removeprefix("@ ") for line in lines if line.startswith("@ ")])
    with pytest.raises(ModelError) as caught:
        program_of(yaml, tensors)
    expected.check("models.txt", name, f"{MODELS[name]}--\n{caught.value}", MODELS)


def test_description_that_is_not_text() -> None:
    with pytest.raises(ModelError, match=r"model.yaml is not text in UTF-8 \(byte 3\)"):
        read_model(Files({"file:///m/model.yaml": b"abc\xff"}), "file:///m")


def test_ignored_parameters() -> None:
    more = GCN | {"decoder.weight": torch.ones(2, 2), "decoder.bias": torch.ones(2)}
    assert read("ignore: [decoder.*]\n" + TWO_GCN, more).output_width == 4


def test_a_residual_that_is_said_is_read() -> None:
    convs = ["conv.att_src [1, 2, 3]", "conv.att_dst [1, 2, 3]", "conv.lin.weight [6, 5]"]
    tensors = weights([*convs, "conv.bias [6]", "conv.res.weight [6, 5]"])
    assert read("library: pyg\nlayers: [{conv: gat, residual: true}]", tensors).output_width == 6


@pytest.mark.parametrize("name", ["fc_src", "fc_dst"])
def test_either_name_of_shared_weights_may_be_the_one_that_was_kept(name: str) -> None:
    yaml = "library: dgl\nlayers: [{conv: gatv2, share_weights: true, bias: false}]"
    assert read(yaml, weights(["attn [1, 2, 3]", f"{name}.weight [6, 5]"])).output_width == 6


def test_a_width_that_no_weight_tells_may_be_given() -> None:
    yaml = "library: dgl\nlayers: [{conv: gcn, weight: false, bias: false}]"
    assert read("input_width: 7\n" + yaml, {}).output_width == 7


# Which parameters belong to which layer


@pytest.mark.parametrize(
    "names",
    [
        ("layers.0", "layers.1"),
        ("convs.0", "convs.1"),
        ("conv1", "conv2"),
        ("gcn1", "gcn2"),
        ("module.net.9.conv", "module.net.10.conv"),
    ],
)
def test_prefixes_are_found(names: tuple[str, str]) -> None:
    first, second = names
    tensors = {name.replace("layers.0", first): value for name, value in GCN.items()}
    tensors = {name.replace("layers.1", second): value for name, value in tensors.items()}
    program = read(TWO_GCN, tensors)
    assert (program.input_width, program.output_width) == (8, 4)


def test_one_layer_needs_no_prefix() -> None:
    program = read(
        "library: dgl\nlayers: [{conv: gcn}]", {"weight": torch.ones(3, 2), "bias": torch.ones(2)}
    )
    assert program.output_width == 2


def test_prefixes_tell_what_has_no_order() -> None:
    order = ["inner.weight [8, 16]", "inner.bias [16]", "outer.weight [16, 4]", "outer.bias [4]"]
    prefixed = TWO_GCN.replace("gcn, a", "gcn, prefix: inner, a").replace(
        "{conv: gcn}", "{conv: gcn, prefix: outer}"
    )
    assert read(prefixed, weights(order)).output_width == 4


# Files


def save(value: Any) -> bytes:
    data = io.BytesIO()
    torch.save(value, data)
    return data.getvalue()


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("made-by-the-weights",)


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("weights.safetensors", b"\x05", "is not a readable safetensors file"),
        ("weights.pt", save(GCN)[:-100], "is damaged, or no state_dict that can be read"),
        ("weights.pt", b"", "is damaged, or no state_dict that can be read"),
        ("model.pt", save(Evil()), "without running code from it"),
        ("model.pt", save(nn.Linear(2, 2)), "save it with torch.save(model.state_dict(), ...)"),
        ("weights.pt", save([1, 2]), "holds a list, not a state_dict"),
        (
            "weights.pt",
            save({"epoch": 3, "best": GCN}),
            "holds more than parameters: epoch, best, and no state_dict under state_dict, model_",
        ),
    ],
)
def test_unreadable_weights(name: str, data: bytes, says: str) -> None:
    files = Files({"file:///m/model.yaml": TWO_GCN.encode(), f"file:///m/{name}": data})
    with pytest.raises(ModelError) as caught:
        read_model(files, "file:///m/")
    assert says in str(caught.value)
    assert f"file:///m/{name}" in str(caught.value)
    assert not Path("made-by-the-weights").exists()


def test_which_weights() -> None:
    files = Files({"file:///m/model.yaml": TWO_GCN.encode()})
    with pytest.raises(ModelError, match=r"must hold one of weights.safetensors, .* holds none"):
        read_model(files, "file:///m")
    files.write("file:///m/weights.pt", save(GCN))
    files.write("file:///m/model.pt", save(GCN))
    with pytest.raises(ModelError, match=r"both weights.pt and model.pt; say which"):
        read_model(files, "file:///m")
    files.write("file:///m/model.yaml", b"weights: model.pt\n" + TWO_GCN.encode())
    assert read_model(files, "file:///m").output_width == 4
    files.write("file:///m/model.yaml", b"weights: other.pt\n" + TWO_GCN.encode())
    with pytest.raises(ObjectMissing, match=r"file:///m/other.pt"):
        read_model(files, "file:///m")
    with pytest.raises(ObjectMissing, match=r"file:///n/model.yaml"):
        read_model(files, "file:///n")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_become_float32(dtype: torch.dtype) -> None:
    tensors = {name: value.to(dtype) for name, value in GCN.items()}
    program = read(TWO_GCN, tensors)
    assert {tensor.dtype for tensor in program.params.values()} == {torch.float32}
    assert all(tensor.is_contiguous() for tensor in program.params.values())
    assert torch.equal(program.params["layers.1.weight"], torch.ones(4, 16))


def test_the_digest_follows_both_files() -> None:
    base = read(TWO_GCN, GCN).digest
    assert re.fullmatch("[0-9a-f]{64}", base)
    assert read(TWO_GCN, GCN).digest == base
    assert read(TWO_GCN + "# note\n", GCN).digest != base
    assert read(TWO_GCN, GCN | {"layers.1.bias": torch.zeros(4)}).digest != base
