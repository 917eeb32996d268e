"""Publishing: routing, checking, appending, and what becomes of messages that do not fit their topic's schema."""
