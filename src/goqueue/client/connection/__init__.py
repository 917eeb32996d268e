"""Connection to brokers: gRPC channels, the directory of partition leaders, retries with backoff, configuration."""
