"""Creating, changing and deleting topics, and opening their logs."""
