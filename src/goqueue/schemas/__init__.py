"""Schema formats (Avro, JSON Schema, Protobuf): parsing, compatibility checks, validation of messages."""
