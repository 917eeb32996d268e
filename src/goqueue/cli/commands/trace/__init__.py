"""``goqueue trace``: the story of one message, event by event."""
