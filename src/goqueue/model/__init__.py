"""Values that all other packages share: ids, messages, settings, sets of offsets, errors, the clock."""
