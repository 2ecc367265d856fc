"""Ottla: a Kafka-compatible event-streaming platform in Python, with pipelines on Spark."""

__version__ = "0.1.0"
