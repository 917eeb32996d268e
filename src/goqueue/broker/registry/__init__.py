"""The schema registry at work: registering schemas, checking values at publish, and caches of parsed schemas."""
