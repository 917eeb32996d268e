"""Protobuf: parsing of ``.proto`` text, compatibility checks, validation of values."""
