"""Administration of groups, dead letters, lanes, delayed messages and transactions."""
