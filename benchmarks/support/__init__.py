"""What the commands share: rounds, results, worker processes, shaped networks, figures."""
