"""Lakes of Parquet files, Delta or Iceberg tables: exactly-once archiving of topics, compaction, and restoring."""
