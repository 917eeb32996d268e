"""Columns encoded and decoded with schemas of the registry."""
