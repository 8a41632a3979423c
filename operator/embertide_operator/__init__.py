"""The Kubernetes half: from an EmbeddingJob to workers, and from workers to its status.

    handlers -> controller -> observe -> reconcile -> (attempt, children, status)
                     |            |
                  queue        cluster: the only caller of the Kubernetes API

Everything below ``reconcile`` is pure: it takes what was seen and the time, and returns what
to do. Nothing is kept in memory that a restart would miss.
"""
