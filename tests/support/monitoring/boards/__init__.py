"""The Grafana dashboards as code: ``python -m tests.support.monitoring dashboards`` writes them."""
