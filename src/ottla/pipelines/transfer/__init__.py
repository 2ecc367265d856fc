"""Whole topics on the move, by Spark: out to Parquet, back in, and into a topic with another number of partitions.

Each of the three goes in steps that are planned before they are taken and noted when they are done, so that one that
was interrupted goes on when it is started again, and writes nothing twice.
"""
