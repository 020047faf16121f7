"""The System V segments that a command's processes made."""

import pytest

from profiler.readers.linux import proc
from profiler.readers.linux.sysv_segments import SysvSegments, parse_segments

_HEADING = (
    b"       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid "
    b"     atime      dtime      ctime                   rss                  swap\n"
)
_STARTED_SECONDS = 1_000


def _line(number: int, maker_pid: int, seconds: int, size_bytes: int) -> bytes:
    """A line as Linux 6.18 writes it."""
    return (
        b"         0 %10d  1600 %21d %5d %5d      0 65534 65534 65534 65534 %10d %10d %10d %21d %21d\n"
        % (number, size_bytes, maker_pid, maker_pid, seconds, seconds, seconds, size_bytes, 0)
    )


class _PlayedSegments:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[bytes] = []
        monkeypatch.setattr(proc, "read_or_none", lambda _: _HEADING + b"".join(self.lines))
        self.segments = SysvSegments(_STARTED_SECONDS * 10**9 + 5)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> _PlayedSegments:
    return _PlayedSegments(monkeypatch)


def test_a_segment_counts_until_it_is_removed(played: _PlayedSegments) -> None:
    played.lines = [_line(3, 70, 1_000, 300)]
    assert not played.segments.are_known
    assert played.segments.held_bytes({70}) == 300
    assert played.segments.are_known
    assert played.segments.held_bytes({71}) == 300, "its maker has ended"
    played.lines = []
    assert played.segments.held_bytes({71}) == 0


def test_segments_of_others_and_from_before_are_not_the_commands(played: _PlayedSegments) -> None:
    played.lines = [_line(1, 70, 999, 100), _line(2, 80, 1_001, 200), _line(4, 0, 1_001, 400)]
    assert played.segments.held_bytes({70, 71}) == 0


def test_a_maker_that_ended_since_the_last_look_is_known(played: _PlayedSegments) -> None:
    played.segments.follow_only({70})
    played.lines = [_line(3, 70, 1_001, 300)]
    assert played.segments.held_bytes({71}) == 300


@pytest.mark.parametrize("text", [b"", b"key shmid\n1 2\n", _HEADING + b"1 2\n"])
def test_a_file_without_sizes_has_no_segments(text: bytes) -> None:
    assert list(parse_segments(text)) == []
