"""``goqueue bench``: measuring throughput and latency of a running broker."""
