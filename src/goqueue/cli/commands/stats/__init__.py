"""``goqueue stats`` and ``goqueue top``."""
