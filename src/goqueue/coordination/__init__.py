"""Pure state machines that coordinate: they decide and apply, and touch no file and no clock."""
