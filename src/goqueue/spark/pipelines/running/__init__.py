"""Execution of pipelines as streams or batches, with quality rules, progress reports and a summary."""
