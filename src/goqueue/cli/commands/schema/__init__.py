"""``goqueue schema``."""
