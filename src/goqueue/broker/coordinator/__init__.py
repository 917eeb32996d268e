"""The state of consumer groups: their journals, what is kept of a group in memory, backlog and lag, each group's state
of a message, and dead-letter topics."""
