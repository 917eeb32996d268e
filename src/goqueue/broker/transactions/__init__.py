"""Producers with ids, and transactions from begin to their markers, including recovery and timeouts."""
