"""Past runs as one HTML page."""
