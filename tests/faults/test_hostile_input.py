"""Small inputs that become large (the monitor has 128 MiB), and links that lie in wait."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from profiler.core.files import write_atomically
from profiler.readers.ecs.container_stats import decode_stats
from profiler.readers.ecs.endpoint_client import MAX_RESPONSE_BYTES
from profiler.readers.ecs.task_metadata import decode_task

MAX_GROWTH_BYTES = 96 * 2**20


def filled(head: bytes, unit: bytes, tail: bytes) -> bytes:
    """As many units as an answer holds."""
    return head + unit * ((MAX_RESPONSE_BYTES - len(head) - len(tail)) // len(unit)) + tail


def numbered(value: bytes) -> bytes:
    """The members of an object with as many names as an answer holds."""
    return b",".join(
        b'"%06x":%s' % (number, value)
        for number in range(MAX_RESPONSE_BYTES // (10 + len(value)) - 50)
    )


NESTED = b"[" * 200 + b"]" * 200
BOMBS: dict[str, Callable[[], bytes]] = {
    "objects": lambda: filled(b'{"Containers":[{}', b",{}", b"]}"),
    "lists": lambda: filled(b'{"Containers":[[]', b",[]", b"]}"),
    "containers": lambda: filled(b'{"Containers":[{"Name":"x"}', b',{"Name":"x"}', b"]}"),
    "nested lists": lambda: filled(b'{"Containers":[[]', b"," + NESTED, b"]}"),
    "depth": lambda: filled(b'{"Containers":', b"[", b""),
    "names": lambda: b'{"Containers":[],' + numbered(b"1") + b"}",
    "containers without stats": lambda: b"{" + numbered(b"{}") + b"}",
    "networks": lambda: (
        b'{"a":{"read":"2026-03-01T10:00:00Z","networks":{' + numbered(b"{}") + b"}}}"
    ),
    "devices": lambda: filled(
        b'{"a":{"read":"2026-03-01T10:00:00Z","blkio_stats":{"io_service_bytes_recursive":[{}',
        b",{}",
        b"]}}}",
    ),
    "one text": lambda: filled(b'{"Name":"', b"x", b'","Containers":[]}'),
    "one number": lambda: filled(b'{"Containers":[],"Limits":{"CPU":1', b"0", b"}}"),
}


@pytest.mark.parametrize(
    "bomb",
    [pytest.param(name, marks=() if name == "one text" else pytest.mark.slow) for name in BOMBS],
)
def test_no_answer_that_is_read_fills_the_monitors_memory(bomb: str) -> None:
    body = BOMBS[bomb]()
    assert MAX_RESPONSE_BYTES // 2 < len(body) <= MAX_RESPONSE_BYTES
    for decode in (decode_task, decode_stats):
        tracemalloc.start()
        try:
            decode(body)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak_bytes < MAX_GROWTH_BYTES, decode.__name__


def test_a_file_that_is_replaced_is_never_written_through_a_link(tmp_path: Path) -> None:
    """In a folder that others may write to, a link with the page's name may lead to a file of
    the user's.
    """
    precious, page = tmp_path / "precious", tmp_path / "task-report.html"
    precious.write_text("precious")
    page.symlink_to(precious)
    write_atomically(page, b"page", mode=0o644)
    assert precious.read_text() == "precious"
    assert page.read_text() == "page"
    assert page.is_symlink() is False
    assert sorted(tmp_path.iterdir()) == [precious, page]
