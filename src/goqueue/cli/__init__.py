"""The ``goqueue`` command: its entry point, the list of commands, and rooms for what commands share."""
