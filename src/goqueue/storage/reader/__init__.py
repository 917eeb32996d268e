"""Reading a data folder without a broker, beside a running one or after it."""
