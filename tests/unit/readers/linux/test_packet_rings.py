"""The rings of packet sockets, which no control group counts."""

import pytest

from profiler.readers.linux import proc
from profiler.readers.linux.packet_rings import PacketRings, parse_ring_sizes
from profiler.readers.linux.process_tree import ProcessReading

_MIB = 2**20
# Recorded on Linux 6.18, the mappings shortened: a ring of 128 MiB.
_HEAD = b"sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n"
_SOCKETS = _HEAD + b"00000000c0e8a5f1 3      3    0000   0     1 0      0      18028425\n"
_MAPS = (
    b"00400000-00420000 r-xp 00000000 fe:00 215        /usr/bin/socket:[1]\n"
    b"7f3175432000-7f317d432000 rw-s 00000000 00:09 18028425                   socket:[18028425]\n"
    b"7f317d44c000-7f317d450000 r--p 00000000 fe:00 21528                      /lib/_socket.so\n"
)


def _ring(inode: int, mib: int) -> bytes:
    return b"1000000-%x rw-s 00000000 00:09 1 socket:[%d]\n" % (0x1000000 + mib * _MIB, inode)


def _process(pid: int, virtual_mib: int) -> ProcessReading:
    """A process whose RSS does not show what it maps, as before Linux 6.2."""
    return ProcessReading(
        pid=pid,
        started_ticks=1,
        own_cpu_ns=0,
        children_cpu_ns=0,
        virtual_bytes=virtual_mib * _MIB,
        rss_bytes=10 * _MIB,
        anonymous_bytes=10 * _MIB,
        shmem_bytes=0,
    )


class _Played:
    """Processes with their virtual memory in MiB, what each maps, and the list of the sockets of
    their network.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        maps: dict[int, bytes],
        sockets: bytes | None = _SOCKETS,
    ) -> None:
        self.looks = 0
        self.reads_of_maps = 0
        self._maps = maps
        self._sockets = sockets
        self._rings = PacketRings()
        monkeypatch.setattr(proc, "read_or_none", self._read)

    def _read(self, path: str) -> bytes | None:
        _, _, pid, name = path.split("/", 3)
        if name == "net/packet":
            self.looks += 1
            return self._sockets
        assert name == "maps"
        self.reads_of_maps += 1
        return self._maps.get(int(pid))

    def held_mib(self, virtual: dict[int, int]) -> float:
        processes = [_process(pid, virtual_mib) for pid, virtual_mib in virtual.items()]
        return self._rings.held_bytes(processes) / _MIB


def test_a_ring_is_the_mapping_of_a_socket() -> None:
    assert parse_ring_sizes(_MAPS) == {b"18028425]": 128 * _MIB}
    assert parse_ring_sizes(b"") == {}


def test_a_file_whose_name_looks_like_a_socket_is_no_ring() -> None:
    assert parse_ring_sizes(b"1000000-9000000 r--s 00000000 fe:00 1 /data/a socket:[1]\n") == {}


def test_the_ring_of_several_processes_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rings = _ring(1, 100) + _ring(2, 50)
    played = _Played(monkeypatch, {1: rings, 2: rings, 3: _ring(3, 70)})
    assert played.held_mib({1: 200, 2: 200, 3: 100}) == 220


def test_small_rings_count_from_64_mib_on(monkeypatch: pytest.MonkeyPatch) -> None:
    played = _Played(monkeypatch, {1: _ring(1, 40), 2: _ring(2, 24), 3: _ring(3, 64)})
    assert played.held_mib({1: 100}) == 0
    assert played.held_mib({1: 100, 2: 100}) == 64
    assert played.held_mib({3: 63}) == 0


def test_mappings_are_read_only_where_the_network_has_packet_sockets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without = _Played(monkeypatch, {1: _ring(1, 100)}, sockets=_HEAD)
    assert without.held_mib({1: 500, 2: 63}) == 0
    assert (without.looks, without.reads_of_maps) == (1, 0)
    unknown = _Played(monkeypatch, {1: _ring(1, 100)}, sockets=None)
    assert unknown.held_mib({1: 500}) == 100


def test_a_process_is_looked_at_again_when_its_mappings_have_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    maps = {1: b""}
    played = _Played(monkeypatch, maps)
    assert played.held_mib({1: 100}) == 0
    maps[1] = _ring(1, 100)
    assert played.held_mib({1: 163}) == 0
    assert played.looks == 1
    assert played.held_mib({1: 200}) == 100
    assert played.held_mib({1: 210}) == 100
    assert played.looks == 2
    maps[1] = b""
    assert played.held_mib({1: 100}) == 0
    assert played.looks == 3


def test_a_process_that_has_ended_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _Played(monkeypatch, {}).held_mib({1: 200}) == 0


def test_processes_that_have_ended_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    played = _Played(monkeypatch, {})
    for pid in range(1, 50):
        played.held_mib({pid: 200, 60: 100})
    assert played.looks == 50
    assert len(played._rings._looks) == 2
