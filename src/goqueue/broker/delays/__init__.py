"""Delayed messages: listing, cancelling and rescheduling them, and appending them again when they are due."""
