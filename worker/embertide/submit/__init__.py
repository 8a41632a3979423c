"""Creating the jobs of a schedule: fill in the date, name by the minute, create once.

Runs in the operator's image and on laptops, so nothing here imports torch; only ``cluster``
imports Kubernetes' client.
"""
