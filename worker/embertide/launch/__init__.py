"""P x M processes call ``pipeline.run``, and why they ended.

local.py           a run on this machine
check.py           `embertide check`: a run's stages, compared instead of published
comparison.py      what each rank computes for it
samples.py         the first rows of every input, before a check reads all
sequence.py        what a laptop's run and a pod's attempt share: plan, check, order, launch
output.py          whether the output can be written
output_lock.py     runs to one output take turns
leftovers.py       what killed runs left, removed by the next
fork_server.py     the process that imports torch once, and calls made in its children
preload.py         what it imports
stocking.py        memory for the first large tensors, made while it imports
launcher.py        starts the workers of one machine or pod, waits for their end
waiting.py         workers that are forked first and told their place later
together.py        all workers of one machine, to their end
elastic.py         a pod's one worker, under torch's elastic agent and rendezvous
rendezvous_state.py  what the launchers' rendezvous keeps in its store, as JSON
worker.py          one worker process
traced.py          the trace of a run, where a collector is named
settings.py        what launchers and workers are given
run_folder.py      every file through which they talk
pulse.py           what happens between two reports of a stage, as progress
stage_reporter.py  a store that does not answer, as progress
failure.py         which worker failed first, and why
process_tree.py    ending processes and what they started
signals.py         Ctrl-C and SIGTERM as errors
"""
