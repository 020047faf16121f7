"""The report page: past runs as one HTML file."""
