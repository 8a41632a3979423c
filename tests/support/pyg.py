"""PyTorch Geometric's modules; its import uses torch.jit, which current torch deprecates."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch_geometric.nn as pyg

__all__ = ["pyg"]
