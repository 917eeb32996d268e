"""The native protocol, without input or output: messages as bytes, and a decoder for both sides (docs/protocol.md)."""
