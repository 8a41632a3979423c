"""A version compared with another one, by id, while its parts are streamed.

histogram.py    values by magnitude, mergeable
rows.py         what there is to know of some rows alone: zeros, norms, duplicates
sample.py       the ids whose neighbours are compared, and how much of them stayed
share.py        what one worker, or one part, knows of the comparison; shares are added up
previous.py     the rows of another version within a range of keys, beside ours
base_rows.py    the rows of the version to compare with
travel.py       how far rows have moved since deltas last had them
chain.py        the delta of a version, as parts
base.py         the version to compare with, as far as its manifest matters
memory.py       what comparing holds, for plans
result.py       the sum of the shares as a `Comparison`
gate.py         the bounds of ``spec.output.gate``
diff.py         two published versions
"""
