"""Observability of the broker: trace events, spans and their exporters, metrics, log lines."""
