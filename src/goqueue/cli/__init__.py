"""The ``goqueue`` command."""
