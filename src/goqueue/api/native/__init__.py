"""The native protocol's server: connections, and what each operation does with the broker."""
