"""``goqueue pipeline``: running and planning pipelines on Spark."""
