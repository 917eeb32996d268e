"""What GoQueue promises to be fast at, measured: ``python -m bench NAME…``."""
