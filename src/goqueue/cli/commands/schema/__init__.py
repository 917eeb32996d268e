"""``goqueue schema``: registering, comparing and showing schemas."""
