"""Versions into indexes that serve them: a new table for each version, then one atomic switch.

=========  ===================================================================================
module     what it has
=========  ===================================================================================
protocol   what an index has to do: a new one is one file with these methods
targets    locations of indexes, and how each kind is opened
postgres   PostgreSQL with pgvector: tables and a view
qdrant     Qdrant: collections and an alias
milvus     Milvus: collections and an alias
lance      LanceDB: branches of a table and a tag
lance_s3   the options of a LanceDB in S3
loading    a version's parts into a table: resumed part by part, retried
verify     a table compared with its version: the count, and a sample of rows
plan       what a push has to do: a table for each result
push       the order of all of it
configured what a job's spec.push makes of it
=========  ===================================================================================
"""
