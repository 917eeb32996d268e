"""Commands on the data folder: ``goqueue doctor`` (of a stopped broker) and ``goqueue dump``."""
