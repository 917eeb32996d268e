"""Shards: a journal each with the queues of its partitions and the groups whose coordinator it is, what is in memory of
both, and the directory that finds them."""
