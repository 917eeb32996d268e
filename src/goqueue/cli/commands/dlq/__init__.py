"""``goqueue dlq``: summaries of dead letters, listing them, and redriving them."""
