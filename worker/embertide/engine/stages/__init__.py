"""The stages of a run; their order is known to ``pipeline`` alone."""
