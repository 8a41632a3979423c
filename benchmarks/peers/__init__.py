"""Other systems on the same work: files in, all embeddings out, one process.

Each is what a careful user of that system would write: columnar readers on all cores, no copy
that is not needed, the system's own fast paths. See ``work.py`` for what the work is.
"""
