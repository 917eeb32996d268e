"""Serving a group's queue: polling over lanes and partitions, settling deliveries (ack, nack, reject, extend), returns
by timeout or departure, acks of transactions, and peeking. What is carried out here is decided in ``delivery``."""
