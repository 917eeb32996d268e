"""State machines behind the journals: the catalog of topics, consumer groups and their assignment, schemas and their
versions, transactions and producer ids. Pure: they decide and apply, and touch no file and no clock."""
