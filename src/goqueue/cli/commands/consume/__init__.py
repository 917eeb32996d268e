"""``goqueue consume``."""
