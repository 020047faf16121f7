"""A snapshot's text is made once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from msgspec.structs import replace

from profiler.prometheus.exporter import RenderCache
from profiler.prometheus.snapshot import Snapshot
from profiler.readers.linux.host import OwnUsage

FIRST = Snapshot(valid_until_ns=1, own_usage=OwnUsage(cpu_seconds=0.25))
SECOND = replace(FIRST, valid_until_ns=2)


def numbering(made: list[int]) -> Callable[[Snapshot], bytes]:
    def make(snapshot: Snapshot) -> bytes:
        made.append(snapshot.valid_until_ns)
        return b"%d" % snapshot.valid_until_ns

    return make


def test_a_text_is_made_for_each_snapshot_and_once() -> None:
    made: list[int] = []
    rendered = RenderCache(numbering(made))
    assert [rendered.render(one) for one in (FIRST, FIRST, SECOND, SECOND)] == [b"1", b"1", b"2", b"2"]
    assert made == [1, 2]


def test_those_who_ask_at_the_same_time_share_one() -> None:
    made: list[int] = []
    rendered, together = RenderCache(numbering(made)), Barrier(8, timeout=30)

    def ask(_: int) -> bytes:
        together.wait()
        return rendered.render(FIRST)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, range(8))) == {b"1"}
    assert made == [1]


def test_a_text_that_could_not_be_made_is_tried_again() -> None:
    answers: list[bytes | Exception] = [ValueError("a bug"), b"text"]

    def make(_: Snapshot) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    rendered = RenderCache(make)
    with pytest.raises(ValueError, match="a bug"):
        rendered.render(FIRST)
    assert rendered.render(FIRST) == b"text"
