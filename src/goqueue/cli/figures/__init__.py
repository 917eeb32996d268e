"""Reading a broker's metrics, and computing rates and percentiles from two samples."""
