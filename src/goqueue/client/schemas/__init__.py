"""Client of the schema registry, and Avro, JSON and Protobuf serializers that use it."""
