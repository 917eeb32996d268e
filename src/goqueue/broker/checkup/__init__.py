"""Examining and repairing the data folder of a stopped broker, for ``goqueue doctor``."""
