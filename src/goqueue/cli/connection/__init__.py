"""Choosing the broker that a command talks to, and calling it over HTTP."""
