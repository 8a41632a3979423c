"""``python -m tools.notebooks [NAME ...]``: make the notebooks of examples/ and run them.

A notebook is made of a page. Blocks that begin with a comment of their file's name are cells of
``%%writefile``, commands of ``console`` blocks cells of the shell, without what the page shows
below them. A script that the page runs once, without arguments, is itself the cell where it is run.
Python without a name is a cell in pages that are notebooks alone. Pictures come from the cells that
make them. All else is text.
"""

from __future__ import annotations

import argparse
import json
import os
import posixpath
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.document_blocks import BLOCK, Block, blocks
from tests.support.paths import ROOT

FOLDER = "examples/notebooks"
PAGES = {
    "tutorial": "docs/tutorial.md",
    "is-it-my-model": f"{FOLDER}/is-it-my-model.md",
    "versions": f"{FOLDER}/versions.md",
}
"""Notebook -> the page that it is made of."""
PICTURES = {"tutorial": ("training.png", "tastes.png")}
"""Files that a notebook writes and its page shows, from docs/images/NOTEBOOK-FILE."""
BEGIN = """\
# All files go to a new folder; commands are those of the kernel's environment.
import os
import sys
import tempfile
from pathlib import Path

os.chdir(tempfile.mkdtemp())
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}\""""

_LINK = re.compile(r"(?<!!)\]\((?!https?:)([^)#]+)")
_PICTURE = re.compile(r"^!\[.*\]\(.*\)\n", re.MULTILINE)


def path_of(name: str) -> Path:
    """Where a notebook is."""
    return ROOT / FOLDER / f"{name}.ipynb"


def cells(name: str) -> list[tuple[str, str]]:
    """A notebook's cells: "markdown" or "code", and the source."""
    page = PAGES[name]
    found = list(_cells(page))
    title, (_, first) = found[0][1].partition("\n\n")[::2], found[0]
    made = f"*Made of [{page}]({_from_notebooks(page)}) by `python -m tools.notebooks`.*"
    found[0] = ("markdown", "\n\n".join(part for part in (title[0], made, title[1]) if part))
    assert first.startswith("# ")
    return [found[0], ("code", BEGIN), *found[1:]]


def _cells(page: str) -> Iterator[tuple[str, str]]:
    text, at, found = (ROOT / page).read_text(encoding="utf-8"), 0, blocks(page)
    runs = [command for block in found for command, _ in block.shown]
    scripts = {
        block.file: block.text.partition("\n")[2]
        for block in found
        if [run for run in runs if run.startswith(f"python {block.file}")]
        == [f"python {block.file}"]
    }
    for match, block in zip(BLOCK.finditer(text), found, strict=True):
        ours = page.startswith(FOLDER) and block.language == "python"
        if ours or block.language == "console" or block.file not in ("", "values.yaml"):
            yield from _markdown(page, text[at : match.start()])
            yield from (("code", source.rstrip("\n")) for source in _code(block, scripts))
            at = match.end()
    yield from _markdown(page, text[at:])


def _code(block: Block, scripts: dict[str, str]) -> Iterator[str]:
    """The cells that a block becomes."""
    if block.language == "python" and not block.file:
        yield block.text
    elif block.file and block.file not in scripts:
        yield f"%%writefile {block.file}\n{block.text}"
    for command, _ in block.shown:
        program, _, rest = command.partition(" ")
        if program == "python":
            yield scripts.get(rest, f"%run {rest}")
        else:
            yield f"%%bash\n{command}"


def _markdown(page: str, text: str) -> Iterator[tuple[str, str]]:
    """A cell of text without pictures, whose links lead where the page's do."""
    folder = posixpath.dirname(page)

    def link(match: re.Match[str]) -> str:
        return f"]({_from_notebooks(posixpath.normpath(posixpath.join(folder, match[1])))}"

    text = _LINK.sub(link, _PICTURE.sub("", text)).strip()
    if text:
        yield "markdown", re.sub(r"\n{3,}", "\n\n", text)


def _from_notebooks(path: str) -> str:
    return posixpath.relpath(path, FOLDER)


def run(name: str, folder: Path) -> Any:
    """The notebook with what its cells show, run in a kernel whose files are in a folder.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed; has its traceback.
    """
    import nbformat
    from nbclient import NotebookClient

    new: dict[str, Any] = {
        "markdown": nbformat.v4.new_markdown_cell,
        "code": nbformat.v4.new_code_cell,
    }
    made = [new[kind](source, id=f"{at}") for at, (kind, source) in enumerate(cells(name))]
    notebook = nbformat.v4.new_notebook(cells=made)
    notebook.metadata["kernelspec"] = {
        "name": "python3", "display_name": "Python 3", "language": "python",
    }  # fmt: skip
    client = NotebookClient(notebook, timeout=900, record_timing=False, coalesce_streams=True)
    client.execute(env=os.environ | {"TMPDIR": str(folder)}, cwd=str(folder))
    notebook.metadata.pop("language_info", None)  # has the version of Python
    for cell in notebook.cells:
        if cell.cell_type == "code":
            kept = [output for output in cell.outputs if output.get("name") != "stderr"]
            text = re.sub(rf"{re.escape(str(folder))}/\w+", "/home/you/shop", json.dumps(kept))
            cell.outputs = [nbformat.from_dict(_tidy(output)) for output in json.loads(text)]
    return notebook


def _tidy(output: dict[str, Any]) -> dict[str, Any]:
    """An output without what was on a line before it was rewritten, and without a second form."""
    if "text" in output:
        output["text"] = re.sub(r"[^\n]*\r(?=.)", "", output["text"])
    if "text/html" in output.get("data", {}):
        output["data"].pop("text/plain", None)
    return output


def main() -> None:
    """Run notebooks, and keep them and the pictures that their pages show."""
    import nbformat

    parser = argparse.ArgumentParser(description="Run notebooks and keep what they show.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PAGES))
    for name in parser.parse_args().names or PAGES:
        with tempfile.TemporaryDirectory() as folder:
            notebook = run(name, Path(folder))
            for file in PICTURES.get(name, ()):
                (found,) = Path(folder).glob(f"*/{file}")
                shutil.copy(found, ROOT / f"docs/images/{name}-{file}")
        nbformat.write(notebook, path_of(name))
        print(path_of(name), f"{path_of(name).stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
