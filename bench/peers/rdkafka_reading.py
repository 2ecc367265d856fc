"""How every consumer of librdkafka is set that is measured, and the same in words for pages. Knows no client."""

from __future__ import annotations

BACKOFF = "fetch.queue.backoff.ms"
SETTINGS = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "log_level": 0,
    # By default whoever has enough before it asks for nothing for a second: the quicker broker would wait more.
    BACKOFF: 10,
}
READING = f"librdkafka with {BACKOFF}={SETTINGS[BACKOFF]}"
