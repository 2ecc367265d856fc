"""One partition's log on disk, in Kafka's own format. Synchronous; knows no topics and no network."""
