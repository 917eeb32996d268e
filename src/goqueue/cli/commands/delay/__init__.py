"""``goqueue delay``: listing, rescheduling and cancelling delayed messages."""
