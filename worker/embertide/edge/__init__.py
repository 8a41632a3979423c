"""Beside the core, which imports none of it: checks of a model, indexes, synthetic graphs."""
