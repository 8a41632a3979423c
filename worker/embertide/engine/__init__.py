"""How it is computed: inputs and grid, stages, and the order of a run."""
