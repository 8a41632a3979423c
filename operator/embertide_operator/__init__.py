"""The operator: creates the workers of an EmbeddingJob and writes their state to its status.

    handlers   kopf watch events -> keys in the work queue
    controller takes a key: observe, decide, write the status, act
    observe    reads the job, its children and pods, and rank 0's status
    reconcile  decides, with advance (a running attempt), failures and children
    outputs    when each output was last published, kept in a ConfigMap
    metrics    what Prometheus reads, with job_series
    kubernetes_api  the only caller of the Kubernetes API

Everything below ``reconcile`` is pure: it takes the observed state and the time, and returns a
decision. No state is kept in memory that a restart would lose: it is in the jobs' status, and what
has to outlive a job in ``outputs``.
"""
