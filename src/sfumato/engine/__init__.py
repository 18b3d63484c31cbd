"""Where the data is: engines count, and hand out exact results sealed."""
