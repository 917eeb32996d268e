"""Creating a Spark session with the data source ``goqueue`` registered."""
