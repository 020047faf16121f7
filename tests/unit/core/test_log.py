"""The log: JSON lines on an output."""

import json
import os

from profiler.core.deadline_writer import Output
from profiler.core.log import JsonLog
from tests.terminals import Pipe
from tests.waiting import wait_until


def test_log_lines_are_json(pipe: Pipe) -> None:
    log = JsonLog(Output(pipe.write_end))
    log.error("It broke.", reason='with "quotes"\nand a newline')
    log.info("Fine.")
    first, second = [json.loads(line) for line in pipe.read_lines()]
    assert (first["level"], first["event"], first["reason"]) == ("error", "It broke.", 'with "quotes"\nand a newline')
    assert second["level"] == "info"
    assert first["timestamp"].endswith("Z")


def test_the_number_of_dropped_lines_is_in_the_first_line_that_is_written_again(pipe: Pipe) -> None:
    pipe.fill()
    output = Output(pipe.write_end, patience_seconds=0)
    log = JsonLog(output)
    for number in range(4):
        log.warning("line", number=number)
    pipe.drop_filling()
    wait_until(lambda: output.is_idle, 60, "the output")
    log.warning("line", number=4)
    wait_until(lambda: output.is_idle, 60, "the output")
    log.warning("line", number=5)
    wait_until(lambda: output.is_idle, 60, "the output")
    lines = [json.loads(line) for line in pipe.read_lines()]
    assert [(line["number"], line.get("lines_dropped")) for line in lines] == [
        (0, None),
        (4, 3),
        (5, None),
    ]


def test_errors_are_written_as_soon_as_somebody_reads(pipe: Pipe) -> None:
    pipe.fill()
    output = Output(pipe.write_end, patience_seconds=0)
    log = JsonLog(output)
    for event in ("one", "two"):
        log.info(event)
        log.error(event)
    assert not output.drain(0)
    pipe.drop_filling()
    assert output.drain(60)
    lines = [json.loads(line) for line in pipe.read_lines()]
    assert [(line["event"], line["level"], line.get("lines_dropped")) for line in lines] == [
        ("one", "info", None),
        ("one", "error", None),
        ("two", "error", 1),
    ]


def test_a_closed_log_stream_raises_nothing() -> None:
    read, write = os.pipe()
    os.close(read)
    JsonLog(Output(write)).warning("Nobody reads this.")
    os.close(write)
