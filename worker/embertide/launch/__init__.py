"""P x M processes call ``pipeline.run``, and why they ended.

local.py         a run on this machine
sequence.py      what it and a pod's attempt share: plan, check, order, launch
fork_server.py   the process that imports torch once, and calls made in its children
preload.py       what it imports
launcher.py      starts the workers of one machine or pod, waits for their end
elastic.py       torch's elastic agent and rendezvous under it
worker.py        one worker process
settings.py      what launchers and workers are told
run_folder.py    every file through which they talk
failure.py       which worker failed first, and why
process_tree.py  ending processes and what they started
signals.py       Ctrl-C and SIGTERM as errors
"""
