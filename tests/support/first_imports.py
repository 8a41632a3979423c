"""Imports the large packages that tests use, so that their bytecode is there when tests begin.

Of all that is installed, tests import a third; and the processes that run them begin together, and
would each compile the same.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress

from embertide.models.dgl_interop import DglUnavailable, load_dgl

PACKAGES = (
    "boto3", "duckdb", "faiss", "hypothesis", "kopf", "kubernetes", "pandas", "polars",
    "pyarrow.parquet", "pytest", "scipy.sparse", "tests.support.pyg", "xdist",
    "embertide.cli.app", "embertide.launch.bootstrap.preload", "embertide.pod.work",
)  # fmt: skip


def main() -> None:
    """Import them; a package that cannot be imported is for its tests to tell."""
    for name in PACKAGES:
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
