"""What is known of whoever sends a group request."""

from __future__ import annotations

from typing import NamedTuple

IN_PROCESS_HOST = "/in-process"
"""Where a member is that runs in the broker's own process."""


class ClientFacts(NamedTuple):
    """As DescribeGroups tells it."""

    client_id: str
    client_host: str
    """Kafka writes a slash before the address, and tools expect it."""

    @property
    def ends_with_broker(self) -> bool:
        """Whether it cannot have outlived the process that the broker ran in."""
        return self.client_host == IN_PROCESS_HOST
