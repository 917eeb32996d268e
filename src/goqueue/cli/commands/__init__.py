"""One module or room for each command."""
