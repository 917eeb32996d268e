"""``goqueue dlq``."""
