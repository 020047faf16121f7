"""The record of a run: its types, its metrics, and the outputs that are made from them."""
