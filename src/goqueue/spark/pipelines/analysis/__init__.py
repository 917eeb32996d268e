"""Reading trace files and dead letters as tables."""
