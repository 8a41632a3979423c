"""From a program to the plan that is shown, costed and run: passes over one list of operations.

===========  ==============================================================================
module       what it does
===========  ==============================================================================
passes       all passes in their order, each with the reason for its place
plan         what they make: the steps in order, the operations, the grid of the layers
order        readers after what they read; products before or after sums; what many read, once
fuse         steps that are one operation
layouts      whole rows or slices; in which layouts operations read and make tensors; phases
flow         rows that are stale or wanted, from step to step through a plan
boundaries   where layers end, the parts between, and the identity of what is computed by then
summary      a plan as plain data, for ``embertide show``
spill        how operations run with their tensors on disk: in which parts and layouts
panels       the columns that are in memory at a time
spilled_run  tensors on disk, or in host memory beside a GPU
places       which part of a tensor is ours, and how its values come from elsewhere
===========  ==============================================================================
"""
