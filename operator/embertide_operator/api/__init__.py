"""The one caller of the Kubernetes API, and the objects that its watches keep in memory.

routes      where the API server has the objects of each kind
transport   one request: limited, counted, with a time limit, answered by JSON or an error
client      the verbs that the operator uses
store, watch, cache  all jobs and their objects, kept by watches
rate_limit, backoff, quantities  how often to ask, when to try again, sizes as Kubernetes has them
"""
