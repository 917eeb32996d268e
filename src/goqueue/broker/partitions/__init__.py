"""One partition at work: appending to its log, its high watermark and waiting readers, and what is derived from its log
(delayed messages, producers, dedup ids). Also the topics that are open, and reading by offset."""
