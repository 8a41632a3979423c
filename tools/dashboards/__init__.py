"""The Grafana dashboards as code: ``python -m tools.dashboards dashboards`` writes them."""
