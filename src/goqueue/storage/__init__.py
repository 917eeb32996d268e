"""The log on disk: segments, indexes, recovery, retention, compaction, group commit."""
