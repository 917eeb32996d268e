"""``goqueue topic``."""
