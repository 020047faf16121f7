"""Readings in, aggregates of constant size out, and the record made from them."""
