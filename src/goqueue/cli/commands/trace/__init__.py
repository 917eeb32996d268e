"""``goqueue trace``."""
