"""Serving a group's queue: polling over lanes and partitions, settling deliveries (ack, nack, reject, extend), and
peeking."""
