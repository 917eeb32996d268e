"""Talking to a person at a terminal: tables, colours, progress, errors with hints, and wording of figures and times."""
