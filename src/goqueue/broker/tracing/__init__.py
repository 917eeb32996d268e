"""Answering where a message went: searching trace events and assembling the story of a message; exporting spans."""
