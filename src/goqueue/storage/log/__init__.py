"""The log of one partition: segments and their indexes, group commit, recovery, compaction, lost ranges."""
