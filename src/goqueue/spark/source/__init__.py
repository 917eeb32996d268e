"""The data source ``goqueue``: reads topics into DataFrames and writes DataFrames to topics."""
