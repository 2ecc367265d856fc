"""What exists: topics, partitions and their settings, and the store that keeps them."""
