"""The rings of packet sockets, which no control group counts."""

import pytest

from profiler.readers.linux import proc
from profiler.readers.linux.packet_rings import PacketRings, parse_rings
from profiler.readers.linux.process_tree import ProcessReading

_MIB = 2**20
# Recorded on Linux 6.18, shortened: a ring of 128 MiB.
_MAPS = (
    b"00400000-00420000 r-xp 00000000 fe:00 215        /usr/bin/socket:[1]\n"
    b"7f3175432000-7f317d432000 rw-s 00000000 00:09 18028425                   socket:[18028425]\n"
    b"7f317d44c000-7f317d450000 r--p 00000000 fe:00 21528                      /lib/_socket.so\n"
)


def _ring(inode: int, mib: int) -> bytes:
    return b"1000000-%x rw-s 00000000 00:09 1 socket:[%d]\n" % (0x1000000 + mib * _MIB, inode)


def _process(pid: int, files_mib: int) -> ProcessReading:
    return ProcessReading(
        pid=pid,
        started_ticks=1,
        own_cpu_ns=0,
        children_cpu_ns=0,
        rss_bytes=(files_mib + 10) * _MIB,
        anonymous_bytes=10 * _MIB,
        shmem_bytes=0,
    )


class _Played:
    """Processes that map files in MiB, and what each maps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, maps: dict[int, bytes]) -> None:
        self.looks = 0
        self._maps = maps
        self._rings = PacketRings()
        monkeypatch.setattr(proc, "read", self._read)

    def _read(self, path: str) -> bytes | None:
        self.looks += 1
        return self._maps.get(int(path.split("/")[2]))

    def held_mib(self, mapped: dict[int, int], counted_mib: int = 0) -> float:
        processes = [_process(pid, files_mib) for pid, files_mib in mapped.items()]
        return self._rings.held_bytes(processes, counted_mib * _MIB) / _MIB


def test_a_ring_is_the_mapping_of_a_socket() -> None:
    assert parse_rings(_MAPS) == {b"18028425]": 128 * _MIB}
    assert parse_rings(b"") == {}


def test_a_file_whose_name_looks_like_a_socket_is_no_ring() -> None:
    assert parse_rings(b"1000000-9000000 r--s 00000000 fe:00 1 /data/a socket:[1]\n") == {}


def test_the_ring_of_several_processes_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rings = _ring(1, 100) + _ring(2, 50)
    played = _Played(monkeypatch, {1: rings, 2: rings, 3: _ring(3, 70)})
    assert played.held_mib({1: 150, 2: 150, 3: 70}) == 220


def test_files_that_the_group_counts_or_another_has_loaded_are_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = _Played(monkeypatch, {1: b"1000000-9000000 r--s 0 fe:00 1 /data\n"})
    assert played.held_mib({1: 500}, counted_mib=450) == 0
    assert played.held_mib({1: 60, 2: 3}) == 0
    assert played.looks == 0
    assert played.held_mib({1: 500}) == 0
    assert played.held_mib({1: 510}) == 0
    assert played.looks == 1


def test_a_ring_of_later_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = {1: b""}
    played = _Played(monkeypatch, maps)
    assert played.held_mib({1: 100}) == 0
    maps[1] = _ring(1, 100)
    assert played.held_mib({1: 200}) == 100
    assert played.held_mib({1: 200}) == 100
    assert played.looks == 2


def test_a_process_that_has_ended_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _Played(monkeypatch, {}).held_mib({1: 200}) == 0


def test_processes_that_have_ended_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    played = _Played(monkeypatch, {})
    for pid in range(1, 50):
        played.held_mib({pid: 200, 60: 100})
    assert played.looks == 50
    assert len(played._rings._rings) == len(played._rings._looked_at) == 2
