"""``embertide check``: a job's model compared with the user's own vectors; nothing is published.

============  ============================================================================
module        what it does
============  ============================================================================
check         a job and a reference in, the verdict out
samples       the first rows of every input, before all of them are read
comparison    a run's graph, prepared once; any program computed on it and compared
diagnose      the first layer that can differ, by trying small changes of the description
alternatives  these changes
============  ============================================================================
"""
