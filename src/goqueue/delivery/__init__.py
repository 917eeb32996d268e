"""What becomes visible to whom and when. Pure: no files, no clock, no network."""
