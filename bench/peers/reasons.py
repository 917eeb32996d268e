"""Why GoQueue is behind where it is: written by hand after looking, not guessed by a program.

The page shows the reason of a work below the figures in which GoQueue is behind in that work, and only then.
"""

from __future__ import annotations

from bench.peers.work import Work

_ROUND_TRIP = (
    "A message that goes alone is a round trip over gRPC. In Python that alone takes 0.26 ms, and 0.2 ms of processor "
    "time on either side, most of it for handing it from thread to thread; over a plain socket the same round trip "
    "takes 0.05 ms. What is ours of the rest is about as much again."
)

WHY_BEHIND: dict[Work, str] = {
    Work.PUBLISH: (
        "What is left is per message: each has a checksum that the client makes and the broker verifies, in Python; "
        "Kafka has one for a whole batch, made in C and verified in Java. And a batch waits for the one before it, "
        "with its disk: one is under way for each partition."
    ),
    Work.SINGLE: _ROUND_TRIP,
    Work.LATENCY: _ROUND_TRIP + " Here there are two of them, there and back to the reader.",
    Work.BACKLOG: (
        "Every message has a checksum of its own, which the client verifies in Python, and a value that is copied out "
        "of its batch. The clients of Kafka and Redis do all of that in C, with a checksum for a batch or without any."
    ),
    Work.QUEUE: (
        "That a message was delivered and that it was acked are two records on the disk, whatever the setting; "
        "elsewhere both are in memory at first, or as durable as the messages. With larger messages copies count: a "
        "delivery still goes through protobuf."
    ),
    Work.DELAY: (
        "What is due is looked for a hundred times a second, so that 5 ms are lost on average before anything is sent."
    ),
}
"""Markdown, a few sentences for each work."""

UNKNOWN = "We have not found out yet why."
