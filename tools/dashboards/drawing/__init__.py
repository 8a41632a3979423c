"""Dashboards drawn in a browser from their JSON and a Prometheus' answers, where Grafana is not."""
