"""Distributed primitives: everything that crosses workers, over one module that moves bytes."""
