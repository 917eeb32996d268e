"""Protobuf: parsing ``.proto`` text, compatibility, checking values."""
