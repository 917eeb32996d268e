"""The way to brokers: connections, the directory of partition leaders, retries with backoff, and configuration."""
