"""Connections between simulated processes: ordered, delayed, cut in one direction or both, lost."""
