"""``embertide embed``: the embeddings of some nodes, in this process; publishes nothing."""
