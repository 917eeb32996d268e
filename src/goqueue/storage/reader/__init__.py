"""Read-only access to a data folder without a broker, or beside a running one."""
