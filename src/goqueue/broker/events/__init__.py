"""Recording what happens to messages, once per batch: counters for metrics, events for traces."""
