"""Moving messages to dead-letter topics, listing them there, and redriving them."""
