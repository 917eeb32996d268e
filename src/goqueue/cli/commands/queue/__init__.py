"""``goqueue queue``."""
