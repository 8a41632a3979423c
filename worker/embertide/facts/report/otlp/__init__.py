"""The trace of a run: what its clocks recorded, as spans for an OpenTelemetry collector."""
