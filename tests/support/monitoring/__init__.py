"""Rules, series that fire them and a real Prometheus, for tests."""
