"""Coordinators: state that lives in compacted internal topics, and the runtime that keeps and rebuilds it."""
