"""``goqueue produce``."""
