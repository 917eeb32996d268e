"""``goqueue stats`` and ``goqueue top``: what a broker holds and does, once or as a live screen."""
