"""``goqueue bench``."""
