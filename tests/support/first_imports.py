"""Imports the large packages that the command and its tests use, so that their bytecode is there.

Of all that is installed, they import a third; processes that begin together would each compile the
same, and where the environment sets ``PYTHONDONTWRITEBYTECODE``, every command would.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from importlib.util import find_spec

from embertide.models.dgl_interop import DglUnavailable, load_dgl

PACKAGES = (
    "boto3", "duckdb", "faiss", "hypothesis", "kopf", "kubernetes", "pandas", "polars",
    "pyarrow.parquet", "pytest", "scipy.sparse", "tests.support.pyg", "xdist",
    "embertide.cli.app", "embertide.launch.bootstrap.preload", "embertide.pod.work",
)  # fmt: skip


def main() -> None:
    """Import those that are there; one that cannot be imported is for its tests to show."""
    for name in PACKAGES:
        if find_spec(name.partition(".")[0]) is None:
            continue
        try:
            importlib.import_module(name)
        except ImportError as error:
            print(f"{name}: {error}", file=sys.stderr)
    with suppress(DglUnavailable):
        load_dgl()
    sys.stderr.flush()
    os._exit(0)  # their own endings take time, and some have things to say


if __name__ == "__main__":
    main()
