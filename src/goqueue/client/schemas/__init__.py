"""The schema registry as a client sees it, and serializers that use it."""
