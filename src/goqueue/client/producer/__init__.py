"""Sending: batching, memory bounds, idempotent retries, and transactions."""
