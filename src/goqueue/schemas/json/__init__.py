"""JSON Schema: parsing, compatibility, checking values, and bounds on their cost."""
