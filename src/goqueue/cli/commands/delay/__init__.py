"""``goqueue delay``."""
