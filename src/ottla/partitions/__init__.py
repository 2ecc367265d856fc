"""A log with a leader: who may append, what is visible, who waits for what."""
