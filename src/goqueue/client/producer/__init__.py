"""Producer: batching, bounded memory, idempotent retries, and transactions."""
