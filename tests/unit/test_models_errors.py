"""What a wrong model.yaml or wrong weights say."""

from __future__ import annotations

import io
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
from embertide.steps import Program
from tests.support.models import Files

GCN = {
    "layers.0.weight": torch.ones(8, 16),
    "layers.0.bias": torch.ones(16),
    "layers.1.weight": torch.ones(16, 4),
    "layers.1.bias": torch.ones(4),
}
TWO_GCN = "library: dgl\nlayers:\n  - {conv: gcn, activation: relu}\n  - {conv: gcn}\n"


def read(yaml: str, tensors: dict[str, torch.Tensor]) -> Program:
    files = Files({"file:///m/model.yaml": yaml.encode()})
    files.write("file:///m/weights.safetensors", safetensors.torch.save(tensors))
    return read_model(files, "file:///m")


def refusal(yaml: str, tensors: dict[str, torch.Tensor] = GCN) -> str:
    with pytest.raises(ModelError) as caught:
        read(yaml, tensors)
    return str(caught.value)


def row(message: str, name: str) -> str:
    """The line of a table of differences that begins with a parameter's name."""
    lines = [line.strip() for line in message.splitlines()]
    found = [re.sub(" {2,}", " | ", line) for line in lines if line.startswith(name + " ")]
    assert len(found) == 1, message
    return found[0]


# The description


@pytest.mark.parametrize(
    ("yaml", "says"),
    [
        (
            "library: dgl\nlayers: [{conv: gcn, improved: true}]",
            "layers[0].improved: unknown field",
        ),
        ("library: pyg\nlayers: [{conv: gcn, norm: both}]", "layers[0].norm: unknown field"),
        ("library: dlg\nlayers: [{conv: gcn}]", "library: is 'dlg'; allowed: dgl, pyg (did you"),
        ("layers: [{conv: gcn}]", "library: is required: dgl or pyg"),
        ("library: dgl\nlayers: []", "layers: must be a list with at least one layer"),
        ("library: dgl\nlayers: [gcn]", "layers[0]: is 'gcn'; must be a mapping with a field conv"),
        ("library: dgl\nlayers: [{con: gcn}]", "layers[0].conv: is required; for dgl Embertide"),
        (
            "library: pyg\nlayers: [{conv: dotgat}]",
            "is 'dotgat'; for pyg Embertide supports agnn, appnp, ",
        ),
        (
            "library: dgl\nlayers: [{conv: gcn, norm: in}]",
            "is 'in'; allowed: both, right, left, none",
        ),
        ("library: dgl\nlayers: [{conv: dotgat}]", "layers[0].num_heads: is required"),
        ("library: dgl\nlayers: [{conv: gatv2, edge_weight: true}]", "takes no edge weights"),
        ("library: pyg\nlayers: [{conv: sage, edge_weight: true}]", "takes no edge weights"),
        (
            "library: pyg\nlayers: [{conv: gcn, normalize: false, add_self_loops: true}]",
            "layers[0].add_self_loops: must not be true where normalize is false",
        ),
        (
            "library: dgl\nlayers: [{conv: gcn, activation: relu, order: [skip]}]",
            "layers[0].order: is [skip]; must name what follows the conv: activation",
        ),
        (
            "library: dgl\nlayers: [{conv: gcn, activation: rely}]",
            "layers[0].activation.kind: is 'rely'; allowed: relu, elu",
        ),
        (
            "library: dgl\nlayers: [{conv: gcn, activation: prelu}]",
            "layers[0].activation.prefix: prelu needs a prefix",
        ),
        (
            "library: dgl\nlayers: [{conv: gcn, activation: {kind: relu, slope: 0.1}}]",
            "layers[0].activation.slope: relu has no slope",
        ),
        (
            "library: dgl\nlayers: [{conv: gcn}, {conv: gcn, skip: {from: 1}}]",
            "layers[1].skip.from: is 1; must be the number of a layer before 1",
        ),
        (
            "library: dgl\nlayers: [{conv: gcn, skip: {from: begin}}]",
            "layers[0].skip.from: is 'begin'; allowed: layer, input, or the number",
        ),
        ("library: dgl\nlayers: [{conv: gcn, batch_norm: {epz: 1}}]", "did you mean 'eps'?"),
        ("library: dgl\nlayers: [{conv: gin, mlp: [{eps: 0.1}]}]", "must have one of: linear"),
        ("library: dgl\nlibrary: pyg", "duplicate key 'library'; remove one of them"),
        ("- gcn", "is a list; must be a mapping with library and layers"),
    ],
)
def test_a_wrong_description(yaml: str, says: str) -> None:
    assert says in refusal(yaml)


def test_all_problems_of_all_layers_with_their_lines() -> None:
    yaml = (
        "library: dgl\nlayers:\n  - {conv: gcn, norm: in}\n  - {conv: gta}\n  - {conv: gat, x: 1}\n"
    )
    message = refusal(yaml)
    assert message.startswith("file:///m/model.yaml has 3 problems:")
    assert "layers[0].norm: is 'in'" in message
    assert "(line 3)" in message
    assert "layers[1].conv: is 'gta'" in message
    assert "(line 4)" in message
    assert "layers[2].x: unknown field" in message
    assert "(line 5)" in message


def test_description_that_is_not_text() -> None:
    with pytest.raises(ModelError, match=r"model.yaml is not text in UTF-8 \(byte 3\)"):
        read_model(Files({"file:///m/model.yaml": b"abc\xff"}), "file:///m")


# Names and shapes


def test_every_difference_at_once_with_both_sides() -> None:
    tensors = {
        "layers.0.weight": torch.ones(8, 16),
        "layers.1.weight": torch.ones(12, 4),
        "layers.1.bias": torch.ones(5),
        "decoder.scale": torch.ones(3),
    }
    message = refusal(TWO_GCN, tensors)
    assert "model.yaml and file:///m/weights.safetensors do not fit together" in message
    assert row(message, "layers.0.bias") == "layers.0.bias | [16] | (layer 0, gcn) | missing"
    assert row(message, "layers.1.weight").endswith("[16, out] | (layer 1, gcn) | [12, 4]")
    assert row(message, "decoder.scale") == "decoder.scale | nothing | [3]"
    assert "bias: false describes a layer without bias" in message
    assert "ignore: [pattern, ...]" in message


def test_a_wrong_bias_beside_a_right_weight() -> None:
    message = refusal(TWO_GCN, GCN | {"layers.1.bias": torch.ones(5)})
    assert row(message, "layers.1.bias") == "layers.1.bias | [4] | (layer 1, gcn) | [5]"
    assert "layers.0" not in message


def test_ignored_parameters() -> None:
    more = GCN | {"decoder.weight": torch.ones(2, 2), "decoder.bias": torch.ones(2)}
    assert read("ignore: [decoder.*]\n" + TWO_GCN, more).output_width == 4
    assert "dekoder.*" in refusal("ignore: [dekoder.*]\n" + TWO_GCN, GCN)


def test_unused_parameters_of_a_residual_say_which_option_reads_them() -> None:
    convs = {
        "conv.att_src": torch.ones(1, 2, 3),
        "conv.att_dst": torch.ones(1, 2, 3),
        "conv.lin.weight": torch.ones(6, 5),
        "conv.bias": torch.ones(6),
        "conv.res.weight": torch.ones(6, 5),
    }
    message = refusal("library: pyg\nlayers: [{conv: gat}]", convs)
    assert row(message, "conv.res.weight") == "conv.res.weight | nothing | [6, 5]"
    assert "residual: true" in message
    assert read("library: pyg\nlayers: [{conv: gat, residual: true}]", convs).output_width == 6
    heads = refusal("library: pyg\nlayers: [{conv: gat, residual: true, heads: 3}]", convs)
    assert row(heads, "conv.att_src").endswith("[1, 3, width] | (layer 0, gat) | [1, 2, 3]")


def test_heads_that_do_not_divide() -> None:
    message = refusal(
        "library: dgl\nlayers: [{conv: dotgat, num_heads: 4}]", {"fc.weight": torch.ones(6, 5)}
    )
    assert row(message, "fc.weight") == "fc.weight | rows for 4 heads | 6 rows"


def test_shared_weights_that_are_not_the_same() -> None:
    tensors = {
        "attn": torch.ones(1, 2, 3),
        "fc_src.weight": torch.ones(6, 5),
        "fc_src.bias": torch.ones(6),
        "fc_dst.weight": torch.zeros(6, 5),
        "fc_dst.bias": torch.ones(6),
    }
    message = refusal("library: dgl\nlayers: [{conv: gatv2, share_weights: true}]", tensors)
    assert "the same as fc_src.weight" in row(message, "fc_dst.weight")
    for name in ("fc_src", "fc_dst"):  # either name may be the one that was kept
        one = {"attn": tensors["attn"], f"{name}.weight": torch.ones(6, 5)}
        program = read(
            "library: dgl\nlayers: [{conv: gatv2, share_weights: true, bias: false}]", one
        )
        assert program.output_width == 6


def test_gin_without_its_mlp() -> None:
    tensors = {
        "convs.0.eps": torch.zeros(1),
        "convs.0.nn.0.weight": torch.ones(8, 5),
        "convs.0.nn.0.bias": torch.ones(8),
        "convs.0.nn.2.weight": torch.ones(4, 8),
        "convs.0.nn.2.bias": torch.ones(4),
    }
    message = refusal("library: pyg\nlayers: [{conv: gin}]", tensors)
    assert row(message, "convs.0.nn.weight").endswith("missing")
    assert row(message, "convs.0.nn.2.weight") == "convs.0.nn.2.weight | nothing | [4, 8]"
    assert "mlp: [linear, relu, linear] describes GIN's function" in message
    short = refusal("library: pyg\nlayers: [{conv: gin, mlp: [linear, relu]}]", tensors)
    assert row(short, "convs.0.nn.2.weight") == "convs.0.nn.2.weight | nothing | [4, 8]"
    long = refusal(
        "library: pyg\nlayers: [{conv: gin, mlp: [linear, relu, linear, relu, linear]}]", tensors
    )
    assert row(long, "convs.0.nn.4.weight").endswith("[out, 4] | (layer 0, gin) | missing")


def test_a_link_between_different_widths() -> None:
    message = refusal(TWO_GCN.replace("activation: relu", "skip: true"))
    assert row(message, "(skip)").endswith(
        "16 columns, or skip with linear | (layer 0, gcn) | 8 columns"
    )


def test_not_a_number_in_the_weights() -> None:
    bad = GCN | {"layers.1.bias": torch.tensor([1.0, float("nan"), 0.0, 0.0])}
    assert row(refusal(TWO_GCN, bad), "layers.1.bias").endswith("NaN or Inf")
    for dtype in (torch.int64, torch.int8, torch.bool, torch.complex64, torch.float8_e4m3fn):
        whole = GCN | {"layers.1.bias": torch.ones(4).to(dtype)}
        assert row(refusal(TWO_GCN, whole), "layers.1.bias").endswith(str(dtype))
    assert "integers and float8 are weights only with their scale" in refusal(TWO_GCN, whole)


def test_a_width_that_no_weight_tells() -> None:
    yaml = "library: dgl\nlayers: [{conv: gcn, weight: false, bias: false}]"
    assert "input_width" in refusal(yaml, {})
    assert read("input_width: 7\n" + yaml, {}).output_width == 7
    assert "[8, out]" not in refusal("input_width: 9\n" + TWO_GCN)
    assert row(refusal("input_width: 9\n" + TWO_GCN), "layers.0.weight").endswith(
        "[9, out] | (layer 0, gcn) | [8, 16]"
    )


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


def test_names_without_an_order_list_the_candidates() -> None:
    tensors = {name.replace("layers.0", "inner"): value for name, value in GCN.items()}
    tensors = {name.replace("layers.1", "outer"): value for name, value in tensors.items()}
    message = refusal(TWO_GCN, tensors)
    assert "layer 0 (gcn): <prefix>.weight; candidates: inner, outer" in message
    assert "give the layers a prefix" in message
    assert "outer.weight [16, 4]" in message
    prefixed = TWO_GCN.replace("gcn, a", "gcn, prefix: inner, a").replace(
        "{conv: gcn}", "{conv: gcn, prefix: outer}"
    )
    assert read(prefixed, tensors).output_width == 4


def test_more_layers_in_the_weights_than_described() -> None:
    message = refusal("library: dgl\nlayers: [{conv: gcn}]")
    assert "layer 0 (gcn): <prefix>.weight; candidates: layers.0, layers.1" in message


def test_norms_without_an_order() -> None:
    norm = {f"{part}.{name}": torch.ones(4) for part in ("a", "b") for name in ("weight", "bias")}
    yaml = TWO_GCN.replace("{conv: gcn}", "{conv: gcn, layer_norm: true}")
    message = refusal(yaml, GCN | norm)
    assert "cannot tell which layer_norm belongs to which layer: 1 layer (1)" in message
    assert "2 candidates: a, b; write layer_norm: {prefix: ...}" in message
    none = refusal(yaml.replace("layer_norm", "batch_norm"), GCN)
    assert "0 candidates: none; write batch_norm: {prefix: ...}" in none
    assert "expected: <prefix>.running_mean; found in the weights:" in none
    assert "layers.1.weight [16, 4]" in none
    chosen = yaml.replace("layer_norm: true", "layer_norm: {prefix: a}")
    assert row(refusal(chosen, GCN | norm), "b.weight") == "b.weight | nothing | [4]"


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
