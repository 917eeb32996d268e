"""``goqueue queue``: peeking at a queue, polling messages from it, and settling them."""
