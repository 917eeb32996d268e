"""What calls and members' streams do, for gRPC and the native protocol. Methods are named as the calls in .proto."""
