"""The delivery of messages to consumer groups, and of delayed messages: state machines and decisions.

``queue`` is one group's view of one partition and changes only by ``events``. Decisions look at it and return events:
``settlement`` (ack, nack, reject, extend), ``retry`` (retry or dead letter), ``claims`` (which receipts and leases
still hold), ``fetch`` and ``selection`` (what a poll gets, and what has expired). Pure: no files, no clock, no
network.
"""
