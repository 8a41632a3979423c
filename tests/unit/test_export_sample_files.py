"""``embertide export --sample``: tensors in files, a job, and files that are no sample."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import save_file

from tests.support import export_samples
from tests.support.models import shake
from tests.support.small_job import SmallJob
from tests.support.typed_files import write_typed_job

Cli = Callable[..., tuple[int, str, str]]
EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 0, 0]])
X = torch.randn(4, 4)
BOUGHT = torch.tensor([[0, 1, 1], [0, 0, 1]])
BY_TYPE = {
    "x_dict": {"user": torch.tensor([[5], [0]]), "item": torch.randn(2, 2)},
    "edge_index_dict": {("user", "buys", "item"): BOUGHT, ("item", "of", "user"): BOUGHT.flip(0)},
}
NAMED = {
    f"{argument}/{':'.join(of) if isinstance(of, tuple) else of}": tensor
    for argument, of_types in BY_TYPE.items()
    for of, tensor in of_types.items()
}


def export(cli: Cli, folder: Path, name: str, sample: Path | str, *more: str) -> tuple[Any, ...]:
    module = shake(getattr(export_samples, name)())
    torch.save(module.state_dict(), folder / "best.pt")
    files = ("--weights", str(folder / "best.pt"), "--out", str(folder / "model"))
    target = f"{export_samples.__file__}:{name}"
    return cli("export", target, *files, "--sample", str(sample), *more)


def taken(cli: Cli, folder: Path, name: str, sample: Path, *more: str) -> dict[str, Any]:
    """What an export took from a sample."""
    code, out, err = export(cli, folder, name, sample, "--json", *more)
    assert code == 0, err
    shown: dict[str, Any] = json.loads(out)["sample"]
    return shown


def test_tensors_of_torch(tmp_path: Path, cli: Cli) -> None:
    torch.save((X, EDGES), tmp_path / "a.pt")
    torch.save({"edge_index": EDGES, "x": X}, tmp_path / "b.pth")
    for name in ("a.pt", "b.pth"):
        assert taken(cli, tmp_path, "Plain", tmp_path / name)["width"] == 4


def test_arrays_and_safetensors_by_argument(tmp_path: Path, cli: Cli) -> None:
    np.savez(tmp_path / "a.npz", x=X.numpy(), edge_index=EDGES.numpy())
    save_file({"x": X, "edge_index": EDGES}, tmp_path / "a.safetensors")
    for name in ("a.npz", "a.safetensors"):
        assert taken(cli, tmp_path, "Plain", tmp_path / name)["width"] == 4


@pytest.mark.parametrize("kind", ["pt", "npz", "safetensors"])
def test_types_and_categories(tmp_path: Path, cli: Cli, kind: str) -> None:
    path = tmp_path / f"typed.{kind}"
    if kind == "pt":
        torch.save(BY_TYPE, path)
    elif kind == "npz":
        np.savez(path, **{name: tensor.numpy() for name, tensor in NAMED.items()})
    else:
        save_file({name: tensor.contiguous() for name, tensor in NAMED.items()}, path)
    shown = taken(cli, tmp_path, "Buyers", path)
    assert shown["nodes"] == {"user": 1, "item": 2}
    assert set(shown["relations"]) == {"user:buys:item", "item:of:user"}
    assert shown["categories"] == {"user": {"0": 6}}


def test_an_option_beside_it_wins(tmp_path: Path, cli: Cli) -> None:
    torch.save((torch.tensor([[3, 1, 1, 0]] * 4), EDGES), tmp_path / "a.pt")
    shown = taken(cli, tmp_path, "Plain", tmp_path / "a.pt", "--categories", "{}")
    assert (shown["width"], shown["categories"]) == (4, {})


def test_columns_of_a_job(tmp_path: Path, cli: Cli) -> None:
    job = SmallJob.make(tmp_path)
    assert taken(cli, tmp_path, "Plain", Path(job.manifest))["width"] == 4
    code, out, _ = export(cli, tmp_path, "Plain", job.manifest)
    assert code == 0
    assert "From the sample, and the options beside it: width 4" in out


def test_types_of_a_job(tmp_path: Path, cli: Cli) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump(write_typed_job(tmp_path)))
    _, _, err = export(cli, tmp_path, "Buyers", job)
    assert "the graph has" in err or "relation" in err
    assert "user:buys:item" in err


WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a.csv": (
        lambda path: path.write_text("x"),
        "is of no known kind; a sample is a file of torch",
    ),
    "a.pt": (lambda path: path.write_bytes(pickle.dumps(Path)), "without running code from it"),
    "b.pt": (lambda path: torch.save(3, path), "holds a int; a sample is a file of torch.save"),
    "c.pt": (lambda path: torch.save((X,), path), "has no edge_index, but Plain.forward takes x"),
    "a.npz": (
        lambda path: np.savez(path, x=np.array([{}], dtype=object)),
        "is no npz file of arrays of numbers",
    ),
    "b.npz": (lambda path: path.write_bytes(b"PK"), "is no npz file of arrays of numbers"),
    "c.npz": (
        lambda path: np.savez(path, **{"x": X.numpy(), "x/user": X.numpy()}),
        "has x as one tensor and x/user; give it as one, or by type",
    ),
    "a.safetensors": (lambda path: path.write_bytes(b"no"), "is no safetensors file"),
    "d.pt": (lambda path: torch.save((X[:3], EDGES), path), "has 3 in row 0, edge 3, but x has 3"),
}


@pytest.mark.parametrize("name", WRONG)
def test_files_that_are_no_sample(tmp_path: Path, cli: Cli, name: str) -> None:
    write, message = WRONG[name]
    write(tmp_path / name)
    code, _, err = export(cli, tmp_path, "Plain", tmp_path / name)
    assert code == 4
    assert message in " ".join(err.split())
    assert "Traceback" not in err
    assert not (tmp_path / "model").exists()


def test_a_sample_that_is_not_there(tmp_path: Path, cli: Cli) -> None:
    code, _, err = export(cli, tmp_path, "Plain", tmp_path / "none.pt")
    assert code != 0
    assert "none.pt" in err
    assert "Traceback" not in err
