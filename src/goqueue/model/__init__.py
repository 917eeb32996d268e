"""What the rest of the system talks about: ids, messages, settings, errors, clock and chance."""
