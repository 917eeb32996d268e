"""Consumer: reading by offset, group membership, queues with leases, streams with commits, workers with a handler."""
