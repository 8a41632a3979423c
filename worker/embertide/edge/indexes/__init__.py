"""Published versions for the indexes that serve them; nothing here runs in a job's workers.

==========  ==================================================================================
module      what it has
==========  ==================================================================================
layout      how rows are laid out for an index: element type, ids, columns, sizes of files
presets     the layouts that known indexes read, with the limits that they publish
rows        a version's rows in a layout: normalised, quantised, checked against the limits
formats     rows as bytes: parquet, JSON lines, OpenSearch bulk, PostgreSQL's binary COPY
convert     a version as a folder of such files
==========  ==================================================================================
"""
