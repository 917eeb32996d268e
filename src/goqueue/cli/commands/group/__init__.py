"""``goqueue group``."""
