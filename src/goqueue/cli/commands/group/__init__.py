"""``goqueue group``: members and lag of groups, resetting their offsets, and deleting them."""
