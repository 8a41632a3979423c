"""The Grafana dashboards as code; ``python -m tools.pages`` writes them."""
