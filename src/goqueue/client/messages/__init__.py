"""Messages before they are sent and after they have come: serializers, trace context, encoding for sending."""
