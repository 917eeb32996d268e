"""One partition at work: its log, high watermark and waiting readers, and what is derived from its log (delayed
messages, producers, dedup ids). Also the topics that are open, and reading by offset."""
