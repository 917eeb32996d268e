"""Terminal output: tables, colours, progress bars, errors with hints, and the formatting of figures, events and
times."""
