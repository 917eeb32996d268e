"""Background work and administration: retention, compaction, snapshots, backups, purging, and accepting losses."""
