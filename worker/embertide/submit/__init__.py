"""Jobs on a cluster: create those of a schedule, once for a minute, and read their logs.

Runs in the operator's image and on laptops, so nothing here imports torch; only ``cluster``
imports Kubernetes' client.
"""
