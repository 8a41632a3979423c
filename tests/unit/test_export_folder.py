"""A folder that was exported is read strictly, and shown layer by layer."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from embertide.errors import ModelError
from embertide.io.storage.opening import open_storage
from embertide.models.read import read_files, read_model
from embertide.tracing.export import Export, export_module
from tests.support.models import Files, shake
from tests.support.pyg import pyg

FOLDER = "file:///m"
TEXT = f"{FOLDER}/program.yaml"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(5, 4)
        self.norm = nn.BatchNorm1d(4)
        self.lin = nn.Linear(8, 2)

    def forward(self, x, edge_index):
        h = self.norm(self.conv(x, edge_index))
        return self.lin(torch.cat([h, h.relu()], dim=1))


@pytest.fixture(scope="module")
def done() -> Export:
    return export_module(shake(Net()))


@pytest.fixture
def files(done: Export) -> Files:
    files = Files({})
    done.write(files, FOLDER)  # type: ignore[arg-type]
    return files


def refusal(files: Files) -> str:
    with pytest.raises(ModelError) as caught:
        read_model(files, FOLDER)  # type: ignore[arg-type]
    return str(caught.value)


def edit(files: Files, old: str, new: str) -> None:
    text = files.objects[TEXT].decode()
    assert old in text
    files.objects[TEXT] = text.replace(old, new).encode()


def test_it_is_read_as_it_was_written(done: Export, files: Files) -> None:
    found = read_files(files, FOLDER)  # type: ignore[arg-type]
    program = found.program()
    assert program.steps == done.exported.program.steps
    assert program.widths == done.exported.program.widths
    assert program.digest == hashlib.sha256(files.objects[TEXT]).hexdigest()
    assert (found.library, found.layer_names) == ("pyg", ("SAGEConv conv",))
    assert (program.input_width, program.output_width, program.layers) == (5, 2, 1)
    assert read_model(files, TEXT).steps == program.steps  # type: ignore[arg-type]


def test_the_text_comes_last_and_the_proof_is_of_it(files: Files) -> None:
    names = [uri.removeprefix(f"{FOLDER}/") for uri in files.objects]
    assert names[-1] == "program.yaml"
    assert {name.split(".")[-1] for name in names} == {"safetensors", "json", "yaml"}
    proof = json.loads(files.objects[f"{FOLDER}/proof.json"])
    assert proof["program_sha256"] == hashlib.sha256(files.objects[TEXT]).hexdigest()
    assert 0 <= proof["largest_error"] <= 1e-9


def test_a_step_is_a_line(done: Export, files: Files) -> None:
    lines = files.objects[TEXT].decode().split("steps:\n")[1].splitlines()
    assert len(lines) == len(done.exported.program.steps)
    assert lines[0].startswith("- {out: 0.linear, columns: 4, layer: 0, step: linear, x: x,")


EDITS = {
    "unknown step": ("step: concat", "step: conact", r"steps\[6\] \(0.concat\): there is no such"),
    "unknown tensor": ("[0.affine, 0.relu]", "[0.affine, 9.relu]", "'9.relu'"),
    "wrong columns": ("columns: 8", "columns: 9", "columns is 9, but the step gives 8"),
    "unknown field": ("norm: in", "norm: in, nrom: in", "aggregate has no nrom"),
    "unknown value": ("norm: in", "norm: inn", r"aggregate norm: Input should be 'none'"),
    "wrong type": ("layer: 0, step: concat", "layer: '0', step: concat", "layer: Input should be"),
    "missing field": (", x: 0.affine", "", r"\(0.relu\): activation x: Field required"),
    "no such layer": ("layer: 0, step: concat", "layer: 1, step: concat", "layers read 1 graphs"),
    "a name twice": ("out: 0.relu, c", "out: 0.affine, c", "an earlier step makes a tensor"),
    "unknown parameter": ("weight: lin.weight", "weight: lin.wieght", "'lin.wieght'"),
    "unknown output": (
        "- {name: 0.linear_2}",
        "- {name: 0.linear_9}",
        "outputs names tensor",
    ),
    "another format": ("format: 1", "format: 2", "has format 2"),
    "no YAML": ("steps:", "steps: [", "not valid YAML"),
    "no steps": ("steps:", "step:", "steps"),
    "other weights": ("sha256: ", "sha256: " + "f" * 64 + " # ", "is not the file that"),
}


@pytest.mark.parametrize("name", EDITS)
def test_what_does_not_fit_is_named(files: Files, name: str) -> None:
    old, new, told = EDITS[name]
    if name == "other weights":
        text = files.objects[TEXT].decode()
        files.objects[TEXT] = re.sub("sha256: .{64}", "sha256: " + "f" * 64, text).encode()
    else:
        edit(files, old, new)
    assert re.search(told, refusal(files))


PARAMETERS: dict[str, tuple[Callable[[dict[str, torch.Tensor]], Any], str]] = {
    "missing": (lambda p: p.pop("lin.bias"), "reads parameter 'lin.bias'"),
    "another shape": (lambda p: p.update({"lin.weight": torch.ones(2, 7)}), r"must be \[D', 8\]"),
    "float8": (
        lambda p: p.update({"lin.bias": torch.ones(2).to(torch.float8_e4m3fn)}),
        "lin.bias holds torch.float8_e4m3fn; parameters are finite numbers",
    ),
    "not finite": (lambda p: p["lin.bias"].fill_(torch.nan), "lin.bias holds NaN or Inf"),
    "whole numbers": (lambda p: p.update({"lin.bias": torch.ones(2).int()}), "holds torch.int32"),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_that_do_not_fit_are_named(files: Files, name: str) -> None:
    change, told = PARAMETERS[name]
    (uri,) = [uri for uri in files.objects if uri.endswith(".safetensors")]
    params = safetensors.torch.load(files.objects[uri])
    change(params)
    old = hashlib.sha256(files.objects[uri]).hexdigest()
    files.objects[uri] = safetensors.torch.save(params)
    edit(files, old, hashlib.sha256(files.objects[uri]).hexdigest())
    with pytest.raises(ModelError, match=told):
        read_model(files, FOLDER)  # type: ignore[arg-type]


def test_a_folder_holds_one_model(files: Files) -> None:
    files.objects[f"{FOLDER}/model.yaml"] = b"library: pyg"
    assert "holds both model.yaml and program.yaml" in refusal(files)


def test_show_draws_layers_and_steps(
    done: Export, tmp_path: Path, cli: Callable[..., tuple[int, str, str]]
) -> None:
    done.write(open_storage(), f"file://{tmp_path}/model")
    code, out, _ = cli("show", str(tmp_path / "model"), "--steps")
    assert code == 0
    assert "SAGEConv conv" in out
    assert "lin.weight [2, 8]" in out
    code, out, _ = cli("show", str(tmp_path / "model"), "--json")
    shown = json.loads(out)
    (layer,) = shown["layers"]
    assert (shown["columns_in"], shown["columns"], layer["reads_edges"]) == (5, 2, True)
    # Weights of the sum and of the node, bias; scale and shift; the Linear.
    assert shown["parameters"] == layer["parameters"] == 5 * 4 * 2 + 4 + 2 * 4 + 8 * 2 + 2
    assert sum(len(step["parameters"]) for step in layer["steps"]) == 7


def test_show_draws_a_description(tmp_path: Path, cli: Callable[..., tuple[int, str, str]]) -> None:
    module = shake(nn.ModuleDict({"convs": nn.ModuleList([pyg.GCNConv(5, 4), pyg.GCNConv(4, 3)])}))
    torch.save(module.state_dict(), tmp_path / "model.pt")
    (tmp_path / "model.yaml").write_text(
        "library: pyg\nlayers: [{conv: gcn, activation: relu}, {conv: gcn}]"
    )
    code, out, _ = cli("show", str(tmp_path), "--json")
    layers = json.loads(out)["layers"]
    assert code == 0
    assert [(one["name"], one["columns"], one["parameters"]) for one in layers] == [
        ("gcn", 4, 24),
        ("gcn", 3, 15),
    ]


HIDDEN = """
import torch


class Hidden(torch.nn.Linear):
    def __init__(self):
        super().__init__(5, 3)

    def forward(self, x, edge_index):
        h = super().forward(x)
        view = h.view(-1, 3)
        h.mul_(2)
        return view * 3
"""


def test_export_command_writes_nothing_where_the_proof_fails(
    tmp_path: Path, cli: Callable[..., tuple[int, str, str]]
) -> None:
    file, out = tmp_path / "hidden.py", tmp_path / "model"
    file.write_text(HIDDEN)
    torch.save(nn.Linear(5, 3).state_dict(), tmp_path / "best.pt")
    command = ("export", f"{file}:Hidden", "--weights", str(tmp_path / "best.pt"))
    code, _, told = cli(*command, "--out", str(out))
    assert code == 4
    assert told.startswith("embertide: error: the program does not give what the module gives")
    assert not out.exists()
    code, _, told = cli(*command, "--out", str(out), "--init", "[]")
    assert code == 2
    assert "--init is []; must be an object" in told


NET = """
import torch
from torch_geometric.nn import GCNConv


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GCNConv(3, 2)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)
"""


@pytest.mark.tier(2)
def test_the_command_says_nothing_but_its_result(tmp_path: Path) -> None:
    """Extensions of a user's libraries report what is left as the interpreter ends."""
    (tmp_path / "net_quiet.py").write_text(NET)
    torch.save(pyg.GCNConv(3, 2).state_dict(prefix="conv."), tmp_path / "best.pt")
    code = "import sys, embertide.cli; sys.exit(embertide.cli.command())"
    command = ("export", "net_quiet.py:Net", "--weights", "best.pt", "--out", "model")
    done = subprocess.run(
        [sys.executable, "-c", code, *command], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "GCNConv conv" in done.stdout
