"""Builds the real clocks, sources, collectors and sinks of the commands."""
