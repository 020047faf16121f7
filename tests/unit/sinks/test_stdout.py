"""Lines on standard output."""

import io
from typing import BinaryIO, cast

from profiler.sinks import DeliveryFailure
from profiler.sinks.stdout import StreamSink


class FullDisk(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, _data: object, /) -> int:
        raise OSError(28, "No space left on device")


def test_a_full_disk_is_a_delivery_failure() -> None:
    failure = StreamSink(cast("BinaryIO", FullDisk())).write(b"line")
    assert isinstance(failure, DeliveryFailure)
    assert "No space left" in failure.reason
    good = io.BytesIO()
    assert StreamSink(good).write(b"line") is None
    assert good.getvalue() == b"line\n"
