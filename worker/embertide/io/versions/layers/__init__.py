"""Kept layers: what an attempt has computed by the end of a layer, where the next one goes on.

The layers of a published version may be kept too, with its graph and digests of what each row was
made of: the next run computes the rows that have changed. All of it are *records*.

========  ==================================================================================
module    what it does
========  ==================================================================================
places    where records lie, and what their objects are called
seals     what makes a record complete: its tensors, their blocks, a checksum of each page
store     the records of one key, in any store
writing   one writer: blocks of each rank's values, what all ranks agree on, the seal; patches
reading   one reader: whole tensors, ranges or some rows, each page checked by itself
attempts  which attempts may read or write at the moment
sweeping  removes what no attempt needs any more
catalog   what is kept, for people
========  ==================================================================================

A record is complete when its seal exists, and never by what a listing shows. A block that is
damaged, cut short, missing or another record's is noticed as :class:`~.seals.Damaged` when a page
of it is read; what it is of is then computed again.
"""
