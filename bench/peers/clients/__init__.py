"""The same work through each system's own Python client."""
