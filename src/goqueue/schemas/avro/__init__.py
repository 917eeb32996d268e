"""Avro: parsing, compatibility checks, validation of values."""
