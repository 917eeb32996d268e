"""Checks of a log's segments and indexes for damage."""
