"""What goes wrong when a topic is moved. Each message says what to do about it."""

from __future__ import annotations

from ottla.errors import OttlaError


class TransferRefused(OttlaError, ValueError):
    """What was asked for cannot be done, or would do harm."""


class TotalsDiffer(OttlaError):
    """What arrived is not what was sent."""


class TransferFailed(OttlaError):
    """Spark gave up."""
