"""Kafka's wire protocol: bytes to messages and back. Pure: knows no sockets and no clock."""
