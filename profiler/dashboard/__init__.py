"""Past runs as one HTML page. Pure: records in, text out; profiler.cli.report reads and writes."""
