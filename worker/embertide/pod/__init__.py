"""The cluster's way in: one worker, the planner, a look at inputs or a push, as a container's main
process.

``python -m embertide.pod work``, ``plan``, ``look`` and ``push``. None of them talks to
Kubernetes: settings come as variables and files, answers leave through HTTP and the termination
message, and SIGTERM ends it all.

    __main__.py    the signal's handler, then one of
    work.py        a worker's container: serve, attempt, hold or end
    once.py        a container that works out one answer and ends: those of the next three
    plan.py        the planner: grid and memory
    look.py        whether inputs are ready that a job waits for
    push.py        the current version into the index of spec.push
    attempt.py     one attempt: earlier versions, inputs, rendezvous, the worker process
    rendezvous.py  how pods find each other
    restart.py     what a container that is started again knows of the one before
    board.py       this worker's status
    http.py        /healthz, /status, /metrics
    metrics.py     the worker's numbers as Prometheus text
    summary.py     a run's report, as much of it as the job's status keeps
    traced.py      the trace of an attempt, where a collector is named
    progress.py    from rank 0's progress to percent, forecast and log lines
    endings.py     from any exception to an Ending; the termination message
    memory.py      the container's memory limit: whether it killed, how much a job needs
    logs.py        one line for each event, for kubectl logs; the last ones for an Ending
    redact.py      no credentials in log and termination message
    settings.py    the environment

Of all this only the planner imports torch; a worker's main process leaves that to its fork server.
"""
