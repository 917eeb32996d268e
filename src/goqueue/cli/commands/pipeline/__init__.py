"""``goqueue pipeline``."""
