"""The log: JSON lines on a stream."""

import io
import json
import os

from profiler.core.log import JsonLog


def test_log_lines_are_json() -> None:
    stream = io.BytesIO()
    JsonLog(stream).error("It broke.", reason='with "quotes"\nand a newline')
    JsonLog(stream).info("Fine.")
    first, second = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (first["level"], first["event"], first["reason"]) == ("error", "It broke.", 'with "quotes"\nand a newline')
    assert second["level"] == "info"
    assert first["timestamp"].endswith("Z")


def test_a_closed_log_stream_raises_nothing() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb", buffering=0) as stream:
        JsonLog(stream).warning("Nobody reads this.")
