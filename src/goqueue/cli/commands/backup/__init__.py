"""``goqueue backup`` and ``goqueue restore``."""
