"""The operator: creates the workers of an EmbeddingJob and writes their state to its status.

Its packages, from the process down to the API:

    runtime     watch events become keys in a queue; a pass: observe, decide, write the status, act
    leadership, metrics, schedules  beside it: who leads, what Prometheus reads, firings of CronJobs
    decide      the decision about a job: pure functions of the observed state and the time
    pods        the objects that the operator creates for a job
    job         what is observed of a job, and its status
    config      settings and pod templates
    api         the only caller of the Kubernetes API

No state is kept in memory that a restart would lose: it is in the jobs' status, and what has to
outlive a job in ``metrics/outputs.py``.
"""
