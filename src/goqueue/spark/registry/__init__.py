"""Encoding and decoding of columns with schemas of the schema registry."""
