"""What is known of whoever sends a group request."""

from __future__ import annotations

from typing import NamedTuple


class ClientFacts(NamedTuple):
    """As DescribeGroups tells it."""

    client_id: str
    client_host: str
    """Kafka writes a slash before the address, and tools expect it."""
