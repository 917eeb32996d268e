"""Messages in the client: encoding for sending, serializers, schema ids of received batches, trace context."""
