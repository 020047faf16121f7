"""The OpenTelemetry signals of an ended run, their encoding, and their export over HTTP (OTLP)."""
