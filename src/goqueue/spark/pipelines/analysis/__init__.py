"""Analysis of trace files and dead letters as tables: offset ranges, latencies, kinds of errors, charts."""
