"""GoQueue beside what people would use instead: the same work, the same durability, one run."""
