"""DGL, where it is installed; None elsewhere.

Modules name ``dgl`` where a model is made, so that tables and pages can be read without it.
"""

from __future__ import annotations

from typing import Any

from embertide.models.dgl_interop import load_dgl, why_no_dgl

dgl: Any = None if why_no_dgl() else load_dgl()
