"""The broker's socket door: connections, their limits, and the life of a server process."""
