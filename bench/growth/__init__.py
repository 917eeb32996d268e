"""How cost grows with what there is: messages, partitions, groups, and the size of a message."""
