"""JSON Schema: parsing, compatibility checks, validation of values, and limits on its cost."""
