"""Imports what the benchmarks' peers import, as far as it is there."""

from __future__ import annotations

from contextlib import suppress

import safetensors.torch  # noqa: F401
import scipy.sparse  # noqa: F401

import tests.support.pyg  # noqa: F401
from embertide.models.dgl_interop import DglUnavailable, load_dgl

with suppress(DglUnavailable):
    load_dgl()
