"""Running a pipeline: as a stream or a batch, with rules of quality, progress and a summary."""
