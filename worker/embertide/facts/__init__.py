"""What a run reports: counters and times, its page, its spans."""
