"""The data folder and its files: the port to the disk, atomic replacement, permissions, recovery points."""
