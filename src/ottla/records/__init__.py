"""Record batches (Kafka's format, magic 2): peek at them, check, build, read, compress."""
