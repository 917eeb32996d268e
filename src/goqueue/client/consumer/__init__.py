"""Consuming: reading by offset, group membership, queues with leases, streams, and running a handler."""
