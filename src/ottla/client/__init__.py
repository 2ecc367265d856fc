"""Producer, consumer and admin, async and blocking, for any Kafka-compatible broker."""
