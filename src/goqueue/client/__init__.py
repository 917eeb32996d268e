"""Talking to brokers: one asynchronous core, with a face for synchronous code."""
