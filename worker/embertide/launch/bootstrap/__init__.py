"""How the processes of a run start, and how they end.

fork_server.py       the process that imports torch once, and calls made in its children
preload.py           what it imports
warmup.py            memory for the first large tensors, made ready meanwhile
start.py             what a laptop's run and a pod's attempt share: plan, check, order, launch
launcher.py          starts the workers of one machine or pod, waits for their end
worker_processes.py  workers, forked before the launcher has threads, that wait for their rank
local_workers.py     all workers of one machine, to their end
elastic.py           a pod's one worker, under torch's elastic agent and rendezvous
rendezvous_state.py  what the launchers' rendezvous keeps in its store, as JSON
process_tree.py      ending processes and what they started

    embertide run              no torch: lists inputs, shows progress
    `-- fork server            imports torch and the pipeline
        |-- plan_run           chooses the grid, estimates, ends
        `-- launcher           forks the workers, gives each its rank, waits for all
            |-- worker 0       pipeline.run
            `-- worker 1       pipeline.run
"""
