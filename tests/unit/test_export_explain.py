"""``embertide export --explain`` shows what was understood, and writes nothing."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import embertide
from tests.support import export_explained
from tests.support.document_blocks import blocks
from tests.support.paths import ROOT

FILE = Path(export_explained.__file__)
Cli = Callable[..., tuple[int, str, str]]
TYPES = {"nodes": {"user": 6, "item": 5}, "edges": {"user:buys:item": 0, "item:of:user": 3}}


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path


def explained(cli: Cli, name: str, *options: str) -> dict[str, Any]:
    """The one object that the command writes with ``--json``."""
    code, out, err = cli("export", f"{FILE}:{name}", "--explain", "--json", *options)
    shown: dict[str, Any] = json.loads(out)
    assert (code, shown["event"], err) == (0, "explain", "")
    return shown


def line_of(text: str) -> str:
    lines = FILE.read_text().splitlines()
    (number,) = [at for at, line in enumerate(lines, 1) if text in line]
    return f"{FILE}:{number}"


def row_of(out: str, first: str) -> str:
    """The row of a table that begins with a cell, in single spaces."""
    (row,) = [line for line in out.splitlines() if line.split()[:1] == [first]]
    return " ".join(row.split())


def test_arguments_layers_lines_and_phases(cli: Cli, tmp_path: Path) -> None:
    code, out, _ = cli("export", f"{FILE}:Net", "--explain")
    assert code == 0
    assert row_of(out, "x") == "x features of the nodes, columns: 8 name"
    assert row_of(out, "edge_attr") == (
        "edge_attr a weight of each edge, one number; compared with and without name"
    )
    assert row_of(out, "mask") == "mask not passed; its default holds"
    assert "GCNConv conv1" in out
    assert "Results: 4 columns" in out
    assert "No --weights: the parameters are as NAME initialises them." in out
    assert re.search(r"Agrees with Net on \d+ random graphs", out)
    assert list(tmp_path.iterdir()) == []


def test_json_is_one_object(cli: Cli) -> None:
    shown = explained(cli, "Net")
    assert [(one["name"], one["role"], one["known_by"]) for one in shown["arguments"]] == [
        ("x", "x", "name"),
        ("edge_index", "edge_index", "name"),
        ("edge_attr", "edge_weight", "name"),
        ("mask", None, ""),
    ]
    assert shown["nodes"] == [{"name": "", "columns": 8, "categories": {}, "tables": {}}]
    model, steps = shown["model"], [s for one in shown["model"]["layers"] for s in one["steps"]]
    assert [one["name"] for one in model["layers"]] == ["GCNConv conv1", "SAGEConv conv2"]
    assert (model["library"], model["results"]) == ("pyg", {"": 4})
    expected = {0: line_of("# line of conv1"), 1: line_of("# line of conv2")}
    assert shown["places"] == {s["out"]: expected[int(s["out"][0])] for s in steps}
    reads = [(op["reads"], op["reach"]) for op in shown["plan"]["ops"] if op["reach"] != "row"]
    assert [reach for _, reach in reads] == ["neighbours", "neighbours"]
    assert shown["proof"]["largest_error"] <= shown["proof"]["tolerance"]
    assert shown["weights"] == "initialised"


def test_it_is_the_same_as_show_of_what_is_written(cli: Cli) -> None:
    torch.save(export_explained.Net().state_dict(), "w.pt")
    shown = explained(cli, "Net", "--weights", "w.pt", "--out", "model")
    assert shown["weights"] == "loaded"
    assert not Path("model").exists()
    assert cli("export", f"{FILE}:Net", "--weights", "w.pt", "--out", "model")[0] == 0
    _, out, _ = cli("show", "model", "--plan", "--json")
    written = json.loads(out)
    assert written.pop("plan") == shown["plan"]
    assert {key: written[key] for key in shown["model"]} == shown["model"]


def test_a_table(cli: Cli) -> None:
    shown = explained(cli, "Table", "--table", "emb")
    assert shown["nodes"] == [
        {"name": "", "columns": 0, "categories": {}, "tables": {"emb.weight": 8}}
    ]
    assert [one["role"] for one in shown["arguments"]] == ["node_id", "edge_index"]
    _, out, _ = cli("export", f"{FILE}:Table", "--explain", "--table", "emb")
    assert row_of(out, "-") == "- emb.weight (8 columns) 0"


def test_types_and_relations(cli: Cli) -> None:
    shown = explained(cli, "Typed", "--graph", json.dumps(TYPES))
    assert {one["name"]: one["columns"] for one in shown["nodes"]} == TYPES["nodes"]
    assert {one["name"]: one["columns"] for one in shown["relations"]} == TYPES["edges"]
    x, edges, features = (one["meaning"] for one in shown["arguments"])
    assert x == "features of the nodes, columns: user 6, item 5"
    assert edges == "the edges of user:buys:item, item:of:user"
    assert features == "features of the edges, columns: item:of:user 3"
    over = {op["relation"] for op in shown["plan"]["ops"] if op["reach"] == "neighbours"}
    assert over == set(TYPES["edges"])


@pytest.mark.dgl
def test_names_in_a_graph_of_dgl(cli: Cli) -> None:
    (argument,) = explained(cli, "InGraph")["arguments"]
    assert argument["meaning"] == (
        "DGL's graph, with the job's edges; reads features of the nodes as 'feat', a weight of"
        " each edge, one number as 'w'"
    )


def test_categories(cli: Cli) -> None:
    shown = explained(cli, "Rows", "--categories", '{"1": 3}')
    assert shown["nodes"][0]["categories"] == {"1": 3}


def test_a_model_without_edges_reads_no_other_nodes(cli: Cli) -> None:
    code, out, _ = cli("export", f"{FILE}:Rows", "--explain")
    assert (code, "No step reads rows of other nodes." in out) == (0, True)


REFUSED = {
    "Branches": (r"if, while or assert on a tensor", "features of the nodes, columns: 8"),
    "UnknownArgument": (r"needs pe, and its name does not", "features of the nodes, columns not"),
    "Global": (r"the program does not give what the module gives", "Results: 16 columns"),
    "Lazy": (r"Lazy\.conv\.lin_l\.weight has no shape before weights", "columns not known"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_comes_after_what_was_understood(cli: Cli, name: str) -> None:
    message, known = REFUSED[name]
    code, out, err = cli("export", f"{FILE}:{name}", "--explain")
    assert code == 4
    assert known in " ".join(out.split())
    assert row_of(out, "edge_index") == "edge_index the edges name"
    assert "Agrees with" not in out
    assert re.search(rf"^embertide: error: .*{message}", err)


def test_a_refusal_in_json_is_one_object_too(cli: Cli) -> None:
    code, out, _ = cli("export", f"{FILE}:UnknownArgument", "--explain", "--json")
    shown = json.loads(out)
    assert (code, shown["event"], shown["exit_code"]) == (4, "error", 4)
    arguments = {one["name"]: one["role"] for one in shown["explained"]["arguments"]}
    assert arguments == {"x": "x", "edge_index": "edge_index", "pe": None}
    assert shown["explained"]["model"] is None
    assert shown["explained"]["proof"] is None


def test_a_role_that_does_not_exist_is_refused(cli: Cli) -> None:
    options = ("--inputs", '{"x": "rows"}')
    code, out, err = cli("export", f"{FILE}:Net", "--explain", *options)
    assert (code, row_of(out, "x")) == (4, "x not known")
    assert "--inputs says x: rows" in err


def test_a_scripted_module_is_refused(cli: Cli) -> None:
    code, _, err = cli("export", f"{FILE}:scripted", "--explain")
    assert code == 4
    assert "is scripted or traced by torch.jit" in err


def test_weights_that_are_missing_are_refused_after_the_arguments(cli: Cli) -> None:
    code, out, err = cli("export", f"{FILE}:Net", "--explain", "--weights", "none.pt")
    assert (code, row_of(out, "edge_index")) == (5, "edge_index the edges name")
    assert "none.pt" in err


def test_before_there_is_a_module_the_refusal_is_alone(cli: Cli) -> None:
    code, out, err = cli("export", f"{FILE}:Missing", "--explain")
    assert (code, out) == (4, "")
    assert "has no Missing" in err


@pytest.mark.parametrize("left", ["--weights", "--out"])
def test_without_it_weights_and_out_are_needed(cli: Cli, left: str) -> None:
    options = {"--weights": "w.pt", "--out": "model"}
    del options[left]
    code, _, err = cli("export", f"{FILE}:Net", *(text for one in options.items() for text in one))
    assert code == 2
    assert f"{left} is missing; only --explain does without it" in err


def test_from_python(tmp_path: Path) -> None:
    done = embertide.export(export_explained.Net(), tmp_path / "model", explain=True)
    assert [one.role for one in done.explanation.arguments][:2] == ["x", "edge_index"]
    assert done.explanation.proof == done.proof
    assert not (tmp_path / "model").exists()
    with pytest.raises(ValueError, match="out is missing; only explain=True does without it"):
        embertide.export(export_explained.Net())


@pytest.fixture
def models_of_page(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The module of docs/export.md in its file, which is imported as ``models``."""
    (page,) = [one for one in blocks("docs/export.md", "py") if "class Net" in one.text]
    Path("shop").mkdir()
    Path("shop/models.py").write_text(page.text)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "models", raising=False)
    yield "shop/models.py"
    sys.modules.pop("models", None)


def test_the_example_of_the_page(
    cli: Cli, models_of_page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rewritten as the screens are: EMBERTIDE_UPDATE_SCREENS=1."""
    monkeypatch.setenv("COLUMNS", "100")
    code, out, _ = cli("export", f"{models_of_page}:Net", "--explain")
    (shown,) = [one.text for one in blocks("docs/export.md", "") if "Arguments of" in one.text]
    screen = without_numbers(out)
    if os.environ.get("EMBERTIDE_UPDATE_SCREENS"):
        document = ROOT / "docs" / "export.md"
        document.write_text(document.read_text().replace(shown, screen))
        shown = screen
    assert (code, screen) == (0, shown)


def without_numbers(screen: str) -> str:
    """The screen without spaces at the ends of lines, empty lines of tables and errors' digits."""
    lines = [line.rstrip() for line in screen.splitlines()]
    text = "\n".join(line for line in lines if line) + "\n"
    return re.sub(r"(largest error) [\d.e-]+", r"\1 1.2e-16", text)


UNTRAINED = (
    "norms.0.module (BatchNorm1d), norms.1 (BatchNorm1d) have statistics that were never loaded or"
    " trained (mean 0, variance 1, no batches); export with the whole state_dict of the trained"
    " module, its buffers too"
)


@pytest.mark.tier(2)
@pytest.mark.parametrize("trained", [False, True])
def test_statistics_that_were_never_trained_are_a_warning(
    cli: Cli, tmp_path: Path, trained: bool
) -> None:
    net = export_explained.Normed()
    for norm in (part for part in net.modules() if isinstance(part, torch.nn.BatchNorm1d)):
        norm.num_batches_tracked += int(trained)
    torch.save(net.state_dict(), tmp_path / "w.pt")
    command = ["export", f"{FILE}:Normed", "--weights", "w.pt"]
    warning = "" if trained else f"warning: {UNTRAINED}\n"
    for more in (["--out", "model"], ["--explain"]):
        code, _, err = cli(*command, *more)
        assert (code, err) == (0, warning)
        code, out, err = cli(*command, *more, "--json")
        assert (code, err) == (0, "")
        assert json.loads(out)["warnings"] == ([] if trained else [UNTRAINED])
    proof = json.loads((tmp_path / "model" / "proof.json").read_text())
    assert len(proof.get("untrained_norms", [])) == (0 if trained else 2)
    # Without weights all norms are so.
    assert explained(cli, "Normed")["warnings"] == []
    assert (UNTRAINED in repr(embertide.export(net, explain=True))) is not trained
