"""``goqueue topic``: listing, creating, changing, purging and deleting topics."""
