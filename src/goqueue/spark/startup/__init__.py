"""Making a Spark session that knows GoQueue."""
