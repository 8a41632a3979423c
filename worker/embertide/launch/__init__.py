"""P x M processes call ``pipeline.run``, and why they ended.

bootstrap/         how these processes start
local.py           a run on this machine
output.py          whether the output can be written
output_lock.py     runs to one output take turns
leftovers.py       what killed runs left, removed by the next
scratch.py         the folder of tensors that do not fit in memory
worker.py          one worker process
settings.py        what launchers and workers get
run_folder.py      the files through which launcher, workers and the command communicate
traced.py          the trace of a run, where a collector is named
pulse.py           what happens between two reports of a stage, as progress
stage_reporter.py  a store that does not answer, as progress
failure.py         which worker failed first, and why
signals.py         Ctrl-C and SIGTERM as errors
"""
