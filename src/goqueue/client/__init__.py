"""Client library: an asynchronous client, and a synchronous client over it."""
