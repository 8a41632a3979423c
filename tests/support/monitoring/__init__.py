"""Dashboards, rules and a real Prometheus for tests; ``python -m tests.support.monitoring``."""
