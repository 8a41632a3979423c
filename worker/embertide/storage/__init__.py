"""Everything that touches objects outside a worker: inputs, parts, versions. Knows no torch."""
