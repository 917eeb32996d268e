"""Which broker a command talks to, and talking to it over HTTP."""
