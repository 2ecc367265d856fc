"""Ottla and other brokers side by side: the same work in turns, on the same machine, in the same run."""
