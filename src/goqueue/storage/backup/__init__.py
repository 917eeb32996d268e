"""The format of backups, writing and reading them."""
