"""Lines on standard output."""

import os

from profiler.core.deadline_writer import Output
from profiler.sinks import DeliveryFailure
from profiler.sinks.stdout import StdoutSink


def test_a_full_disk_is_a_delivery_failure() -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    failure = StdoutSink(Output(descriptor)).write(b"line")
    os.close(descriptor)
    assert isinstance(failure, DeliveryFailure)
    assert "Standard output cannot be written (No space left" in failure.reason


def test_a_line_ends_with_a_newline() -> None:
    read, write = os.pipe()
    sink = StdoutSink(Output(write))
    assert (sink.write(b"one"), sink.keep(b"two")) == (None, None)
    assert os.read(read, 100) == b"one\ntwo\n"
    os.close(read)
    os.close(write)
