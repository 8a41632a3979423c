"""Local compute: torch only, knows nothing of ranks."""
