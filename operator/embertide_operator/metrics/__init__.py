"""What Prometheus reads: the work of this operator, its jobs, and a record of each output."""
