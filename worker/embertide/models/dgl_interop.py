"""The one place that imports DGL.

The pipeline understands DGL's weights without DGL. What needs the library itself (training in
an example, comparing against its modules) gets it here, or a message that says why not. DGL's
last wheel that imports on current torch is 1.1.3, built for Python 3.11 and older.
"""

from __future__ import annotations

import os
import sys
import warnings
from importlib.util import find_spec
from typing import Any


class DglUnavailable(ImportError):
    """No working DGL on this Python."""


def why_no_dgl() -> str:
    """Why DGL cannot be imported on this Python, or an empty text where it should be."""
    major, minor = sys.version_info[:2]
    if (major, minor) >= (3, 12):
        return (
            f"dgl has no working wheel for Python {major}.{minor}"
            " (the last one, 1.1.3, is for Python 3.11 and older)"
        )
    if find_spec("dgl") is None:
        return "dgl is not installed: pip install 'embertide[dgl]'"
    return ""


def load_dgl() -> Any:
    """Import and return the module ``dgl`` with its torch backend.

    Raises:
        DglUnavailable: there is no working wheel for this Python, or it is not installed.
    """
    reason = why_no_dgl()
    if reason:
        raise DglUnavailable(f"{reason}; the models of model.yaml run without it")
    # Without a backend named, the first import writes a file into the home directory.
    os.environ.setdefault("DGLBACKEND", "pytorch")
    with warnings.catch_warnings():
        # 1.1.3 is old: its escapes and its use of torch.jit are deprecated by now.
        warnings.simplefilter("ignore")
        try:
            import dgl
        except (ImportError, OSError) as error:
            raise DglUnavailable(
                f"dgl cannot be imported ({error}); install it with: pip install 'embertide[dgl]'"
            ) from error
    return dgl
