"""``goqueue produce``: publishing messages from arguments, lines, files and JSONL."""
