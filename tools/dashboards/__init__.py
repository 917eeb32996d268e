"""What the Grafana dashboards show, a module for each."""
