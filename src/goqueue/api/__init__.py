"""The ways in. Each is thin, and none imports another."""
