"""Avro: parsing, compatibility, checking values."""
