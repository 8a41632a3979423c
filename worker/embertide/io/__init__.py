"""Objects in, versions out: storage, readers, versions, comparisons of versions."""
