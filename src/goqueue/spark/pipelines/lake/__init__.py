"""A lake of files and tables: writing topics to it exactly once, and back."""
