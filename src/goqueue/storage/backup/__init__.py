"""Backups: their format, and how they are written and read."""
