"""Serving HTTP: connections, admission, requests within limits, content coding, and origin checks."""
