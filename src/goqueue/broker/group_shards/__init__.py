"""Shards of consumer groups: a journal each with the groups in it, their state in memory, retry times and backlog, and
the directory that finds a group's shard."""
