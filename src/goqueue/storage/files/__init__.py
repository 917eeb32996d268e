"""The data folder and its files: the file system port, atomic replacement, permissions, recovery points."""
