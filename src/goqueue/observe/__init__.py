"""What the broker reports about itself: trace events and spans with their exporters, metrics, and log lines."""
