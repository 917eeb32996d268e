"""What the other rooms stand on: journals with their snapshots, timers, recovery points, the disk-space guard, and
pacing of long work on the event loop. Knows no topics and no groups."""
