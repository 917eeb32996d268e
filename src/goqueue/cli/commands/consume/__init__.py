"""``goqueue consume``: reading messages by offset, by time, as they come, or as a member of a group."""
