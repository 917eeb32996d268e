"""Commands for the folder of a stopped broker: ``goqueue doctor`` and ``goqueue dump``."""
