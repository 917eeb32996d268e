"""Bytes as they travel and lie on disk: frames and batches of frames."""
