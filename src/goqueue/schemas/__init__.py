"""What schemas mean: reading them, comparing them, checking messages against them. Avro, JSON Schema and Protobuf."""
