"""``python -m tools.pages [FILE ...]``: write these files again, or all that are made from code."""

from __future__ import annotations

import argparse

from embertide.models.dgl_interop import why_no_dgl
from tests.support.paths import ROOT
from tools.pages import MADE, OF_DGL, make


def main() -> None:
    """Write them; those that need DGL are left where it is not there."""
    parser = argparse.ArgumentParser(description="Write files that are made from code again.")
    parser.add_argument("files", nargs="*", metavar="FILE", help=", ".join(MADE))
    for file in parser.parse_args().files or MADE:
        if file in OF_DGL and why_no_dgl():
            print(f"{file}: left as it is: {why_no_dgl()}")
        else:
            (ROOT / file).write_text(make(file), encoding="utf-8")
            print(file)


if __name__ == "__main__":
    main()
