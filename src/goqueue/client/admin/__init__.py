"""Administration: groups, dead letters, lanes, delayed messages and transactions."""
