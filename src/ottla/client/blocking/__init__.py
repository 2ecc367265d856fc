"""The plain face: the same client for programs without an event loop."""
