"""Embertide keeps graph embeddings fresh: exact, distributed all-node GNN inference."""

__version__ = "0.1.0"
