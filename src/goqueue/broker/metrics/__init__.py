"""What a broker reports about itself: metrics and health checks."""
