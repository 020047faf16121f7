"""Small inputs that become large: what an endpoint's answer may cost the monitor, which has 128 MiB."""

import tracemalloc

import pytest

from profiler.sources.container_stats import decode_stats
from profiler.sources.endpoint import LARGEST_ANSWER_BYTES
from profiler.sources.task_metadata import decode_container, decode_task

LARGEST_GROWTH_BYTES = 96 * 2**20


def filled(head: bytes, unit: bytes, tail: bytes) -> bytes:
    """As many units as an answer holds."""
    return head + unit * ((LARGEST_ANSWER_BYTES - len(head) - len(tail)) // len(unit)) + tail


def numbered(value: bytes) -> bytes:
    """The members of an object with as many names as an answer holds."""
    return b",".join(b'"%06x":%s' % (number, value) for number in range(LARGEST_ANSWER_BYTES // (10 + len(value)) - 50))


NESTED = b"[" * 200 + b"]" * 200
BOMBS = {
    "objects": filled(b'{"Containers":[{}', b",{}", b"]}"),
    "lists": filled(b'{"Containers":[[]', b",[]", b"]}"),
    "containers": filled(b'{"Containers":[{"Name":"x"}', b',{"Name":"x"}', b"]}"),
    "nested lists": filled(b'{"Containers":[[]', b"," + NESTED, b"]}"),
    "depth": filled(b'{"Containers":', b"[", b""),
    "names": b'{"Containers":[],' + numbered(b"1") + b"}",
    "containers without stats": b"{" + numbered(b"{}") + b"}",
    "networks": b'{"a":{"read":"2026-03-01T10:00:00Z","networks":{' + numbered(b"{}") + b"}}}",
    "devices": filled(
        b'{"a":{"read":"2026-03-01T10:00:00Z","blkio_stats":{"io_service_bytes_recursive":[{}', b",{}", b"]}}}"
    ),
    "one text": filled(b'{"Name":"', b"x", b'","Containers":[]}'),
    "one number": filled(b'{"Containers":[],"Limits":{"CPU":1', b"0", b"}}"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_no_answer_that_is_read_fills_the_monitors_memory(bomb: str) -> None:
    body = BOMBS[bomb]
    assert LARGEST_ANSWER_BYTES // 2 < len(body) <= LARGEST_ANSWER_BYTES
    for decode in (decode_task, decode_stats, decode_container):
        tracemalloc.start()
        try:
            decode(body)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak_bytes < LARGEST_GROWTH_BYTES, decode.__name__
