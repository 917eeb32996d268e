"""The state of consumer groups: their journals, what is kept of a group in memory, retry times, and where dead letters
go."""
