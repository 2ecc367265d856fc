"""Pipelines: topics and tables in, SQL or Python in the middle, topics and tables out, as streaming queries on Spark."""
