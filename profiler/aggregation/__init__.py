"""Aggregates readings in constant memory and builds the record from the aggregates."""
