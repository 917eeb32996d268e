"""Puts the layers together: topics, partitions, publish, read, and every background task."""
