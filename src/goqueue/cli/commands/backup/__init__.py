"""``goqueue backup`` and ``goqueue restore``: writing a backup of a broker, and making a data folder of it."""
