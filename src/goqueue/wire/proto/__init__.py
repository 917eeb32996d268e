"""The gRPC API's definition and what is generated from it (``make proto``)."""
