"""A broker's configuration from file, environment and flags, and displaying it."""
