"""The process: what runs when, from watch events to passes.

handlers    kopf watch events -> keys in the work queue
controller  takes a key, and decides whether it needs a pass
passes      one pass: observe, decide, write the status, act
admission   which job may start, within the capacity of the operator
polling     asks rank 0 of running jobs, in the background
health      /healthz and /metrics
"""
