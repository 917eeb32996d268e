"""The data source ``goqueue``: reading topics into DataFrames and writing DataFrames to topics."""
