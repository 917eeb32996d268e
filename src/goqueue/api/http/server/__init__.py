"""Serving HTTP: connections, admission, content coding, origin checks, and the OpenAPI document."""
