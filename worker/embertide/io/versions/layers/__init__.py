"""Kept layers: what an attempt has computed by the end of a layer, where the next one goes on.

The layers of a published version may be kept too, with digests of what each row was made of: the
next run computes the rows that have changed.

=========  =================================================================================
module     what it does
=========  =================================================================================
places     where kept layers lie, and what their objects are called
seals      the record that makes a layer complete: its tensors, and their blocks with checksums
patches    rows that a later run has computed again, beside the blocks of an earlier one
store      writes blocks, seals a layer, reads rows of a sealed one
some_rows  some rows of a tensor, from their blocks alone
attempts   which attempts may read or write at the moment
sweeping   removes what no attempt needs any more
catalog    what is kept, for people
=========  =================================================================================

A layer is complete when its seal exists, and never by what a listing shows. The seal has the
checksum of every block, so a block that is damaged, cut short, missing or another layer's is
noticed when it is read; the layer is then computed again.
"""
