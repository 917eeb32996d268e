"""Examining the segments and indexes of a log for damage."""
