"""A response of ``/task/stats``: Docker's stats documents, by Docker id.

The memory fields come from cgroup v1 or v2. A container without stats is ``null`` (endpoint v3, Fargate), ``{}``
(endpoint v4 on EC2) or has a ``read`` in year 1. Docker omits fields that are zero, so every field is optional.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import msgspec
from msgspec import UNSET, Struct, UnsetType

from profiler.core.json_fields import MAX_COUNT, Json, count
from profiler.core.timestamps import parse_ns
from profiler.readers import Unavailable
from profiler.readers.cgroup.hierarchy import unmapped_cache_bytes
from profiler.readers.container_sample import ContainerSample

# The usual major number of device-mapper nodes. Majors above 240 are assigned dynamically: a virtio disk may have it.
_USUAL_DEVICE_MAPPER_MAJOR = 253
_DEVICE_MAPPER = "device-mapper"
_BLOCK_DEVICES_HEADING = "Block devices:"
_MAX_PROBLEMS = 8
# The operations of block I/O by their names: cgroup v1 writes ``Read``, v2 ``read``. The others are not counted.
_OPERATIONS = {"read": "read", "write": "write", "Read": "read", "Write": "write"}


class StatsReading(Struct, frozen=True, kw_only=True):
    """All containers of a response: samples, ids without stats, and the errors of entries that cannot be decoded.

    ``problems`` are the reasons why a single value of a sample is absent.
    """

    samples: Mapping[str, ContainerSample]
    without_stats: frozenset[str]
    refused: Mapping[str, str]
    problems: tuple[str, ...] = ()


# The type of all counts is ``object``, so that a wrong type invalidates this count only. The decoder skips fields
# that are not named here (precpu_stats, percpu_usage, throttling_data and most of memory_stats.stats) without
# creating objects for them.


class _CpuUsage(Struct):
    total_usage: Json = None


class _CpuStats(Struct):
    cpu_usage: _CpuUsage | None = None


class _MemoryDetail(Struct):
    total_active_file: Json = None
    active_file: Json = None
    total_inactive_file: Json = None
    inactive_file: Json = None
    total_mapped_file: Json = None
    mapped_file: Json = None
    file_mapped: Json = None
    total_cache: Json = None
    cache: Json = None


class _MemoryStats(Struct):
    usage: Json = None
    max_usage: Json = None
    limit: Json = None
    failcnt: Json = None
    stats: _MemoryDetail | None = None


class _BlockEntry(Struct):
    major: int = 0
    minor: int = 0
    op: str = ""
    value: Json | UnsetType = UNSET


class _BlockStats(Struct):
    io_service_bytes_recursive: list[_BlockEntry] | None = None


class _Network(Struct):
    rx_bytes: Json = None
    tx_bytes: Json = None


class _Pids(Struct):
    current: Json = None


class _Entry(Struct):
    read: Json = None
    cpu_stats: _CpuStats | None = None
    memory_stats: _MemoryStats | None = None
    blkio_stats: _BlockStats | None = None
    networks: dict[str, _Network] | None = None
    network: dict[str, _Network] | None = None
    pids_stats: _Pids | None = None


_DECODE_ERRORS = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


@cache
def _response_decoder() -> msgspec.json.Decoder[dict[str, _Entry | None]]:
    """The decoder, which is slow to make: `run` imports this module and decodes nothing."""
    return msgspec.json.Decoder(dict[str, _Entry | None])


def decode_stats(body: bytes, device_mapper_majors: frozenset[int] | None = None) -> StatsReading | Unavailable:
    """Decode a response. An entry that cannot be decoded does not affect the others.

    Args:
        body: The response.
        device_mapper_majors: The major numbers of device-mapper nodes on this machine; None if they are unknown.
    """
    try:
        entries, refused = _decode_entries(body)
    except _DECODE_ERRORS as error:
        return Unavailable(f"/task/stats answered with something else than a JSON object: {error}")
    samples: dict[str, ContainerSample] = {}
    without_stats: set[str] = set()
    problems: dict[str, None] = {}
    for docker_id, entry in entries.items():
        if entry is None:
            without_stats.add(docker_id)
            continue
        parser = _EntryParser(device_mapper_majors)
        sample = parser.sample(entry)
        if sample is None:
            without_stats.add(docker_id)
        else:
            samples[docker_id] = sample
            problems.update(parser.problems)
    return StatsReading(
        samples=samples,
        without_stats=frozenset(without_stats),
        refused=refused,
        problems=tuple(problems)[:_MAX_PROBLEMS],
    )


def _decode_entries(body: bytes) -> tuple[dict[str, _Entry | None], dict[str, str]]:
    """Decode all entries at once or, if that fails, each by itself. Returns them, and the errors of the others."""
    try:
        return _response_decoder().decode(body), {}
    except _DECODE_ERRORS:
        return _decode_each(body)


def _decode_each(body: bytes) -> tuple[dict[str, _Entry | None], dict[str, str]]:
    entries: dict[str, _Entry | None] = {}
    refused: dict[str, str] = {}
    for docker_id, raw in msgspec.json.decode(body, type=dict[str, msgspec.Raw]).items():
        try:
            entries[docker_id] = msgspec.json.decode(raw, type=_Entry | None)
        except _DECODE_ERRORS as error:
            refused[docker_id] = str(error)
    return entries, refused


def parse_device_mapper_majors(devices: str) -> frozenset[int] | None:
    """The major numbers of device-mapper nodes in ``/proc/devices``; None if the text does not list block devices."""
    _, heading, blocks = devices.partition(_BLOCK_DEVICES_HEADING)
    if not heading:
        return None
    numbers = (line.split() for line in blocks.splitlines())
    return frozenset(int(words[0]) for words in numbers if words[1:] == [_DEVICE_MAPPER] and words[0].isdecimal())


class _EntryParser:
    """Parses one container's entry, and collects the reasons why a value that is in it is left out."""

    def __init__(self, device_mapper_majors: frozenset[int] | None) -> None:
        self._device_mapper_majors = device_mapper_majors
        self.problems: dict[str, None] = {}

    def sample(self, entry: _Entry) -> ContainerSample | None:
        """The sample; None without a readable time."""
        read_ns = parse_ns(entry.read)
        if read_ns is None:
            return None
        cpu = entry.cpu_stats.cpu_usage if entry.cpu_stats else None
        memory = entry.memory_stats or _MemoryStats()
        # Old agents on Fargate use the singular.
        networks = (entry.networks or entry.network or {}).values()
        block_bytes = self._block_bytes(
            (entry.blkio_stats.io_service_bytes_recursive if entry.blkio_stats else None) or ()
        )
        usage_bytes = self._count("memory_stats.usage", memory.usage)
        cache_bytes = None if usage_bytes is None else self._cache_bytes(usage_bytes, memory.stats or _MemoryDetail())
        return ContainerSample(
            read_ns=read_ns,
            cpu_ns=self._count("cpu_stats.cpu_usage.total_usage", cpu.total_usage) if cpu else None,
            memory_used_bytes=None if usage_bytes is None else usage_bytes - (cache_bytes or 0),
            memory_cache_bytes=cache_bytes,
            memory_usage_peak_bytes=self._count("memory_stats.max_usage", memory.max_usage),
            memory_limit_bytes=self._count("memory_stats.limit", memory.limit),
            memory_limit_hits=self._count("memory_stats.failcnt", memory.failcnt),
            network_rx_bytes=self._sum("networks.rx_bytes", [network.rx_bytes for network in networks]),
            network_tx_bytes=self._sum("networks.tx_bytes", [network.tx_bytes for network in networks]),
            block_read_bytes=block_bytes.get("read"),
            block_write_bytes=block_bytes.get("write"),
            pids=self._count("pids_stats.current", entry.pids_stats.current) if entry.pids_stats else None,
        )

    def _count(self, name: str, value: Json) -> int | None:
        """The value if it is a count, else None; a present value that is not a count is a problem."""
        if type(value) is int and 0 <= value <= MAX_COUNT:  # the usual case; saves a call for each value of each tick
            return value
        if value is None:
            return None
        number = count(value)
        if number is None:
            self._add_problem(f"{name} is not a whole number from 0 to 2^63 - 1")
        return number

    def _add_problem(self, problem: str) -> None:
        # A hostile response can have a problem for every few bytes.
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems[problem] = None

    def _sum(self, name: str, values: Iterable[Json]) -> int | None:
        """The sum of the counts; None without a count, or if the sum is too large for the record's integers."""
        known = [number for value in values if (number := self._count(name, value)) is not None]
        return self._within_integers(name, sum(known)) if known else None

    def _within_integers(self, name: str, total: int) -> int | None:
        if total <= MAX_COUNT:
            return total
        self._add_problem(f"{name}: the sum of the counters is above 2^63 - 1")
        return None

    def _cache_bytes(self, usage_bytes: int, detail: _MemoryDetail) -> int | None:
        """The page cache that no process maps.

        cgroup v1 has ``total_`` members, which include the groups below, and ``mapped_file``; v2 has ``file_mapped``.
        """
        return unmapped_cache_bytes(
            usage_bytes,
            active=self._first_count(detail.total_active_file, detail.active_file),
            inactive=self._first_count(detail.total_inactive_file, detail.inactive_file),
            mapped=self._first_count(detail.total_mapped_file, detail.mapped_file, detail.file_mapped),
            cache=self._first_count(detail.total_cache, detail.cache),
        )

    def _first_count(self, *values: Json) -> int | None:
        for value in values:
            number = self._count("memory_stats.stats", value)
            if number is not None:
                return number
        return None

    def _block_bytes(self, entries: Sequence[_BlockEntry]) -> Mapping[str, int]:
        """Bytes by operation (``read``, ``write``). The bytes of a stack of devices count once.

        Both versions of cgroup also list sums (``Total``, ``Sync``, ``Async``). Device-mapper
        nodes are stacked on disks and repeat their traffic, but the kernel attributes some traffic only to the node.
        Both the sum of the disks and the largest node are lower bounds, so the larger one counts.
        """
        disks: dict[str, int] = {}
        mapped: dict[str, dict[int, int]] = {}
        mapped_majors = self._mapped_majors(entries)
        # Some agents leave zeros out. If a response lists zeros, an absent value is unknown.
        absent = None if any(entry.value == 0 for entry in entries) else 0
        for entry in entries:
            operation = _OPERATIONS.get(entry.op)
            if operation is None:
                continue
            value = absent
            if entry.value is not UNSET:
                value = self._count("io_service_bytes_recursive.value", entry.value)
            if value is None:
                continue
            if entry.major not in mapped_majors:
                disks[operation] = disks.get(operation, 0) + value
                continue
            nodes = mapped.setdefault(operation, {})
            nodes[entry.minor] = nodes.get(entry.minor, 0) + value
        bytes_by_operation: dict[str, int] = {}
        for operation in disks.keys() | mapped.keys():
            largest = max(disks.get(operation, 0), *mapped.get(operation, {0: 0}).values())
            total = self._within_integers("io_service_bytes_recursive", largest)
            if total is not None:
                bytes_by_operation[operation] = total
        return bytes_by_operation

    def _mapped_majors(self, entries: Sequence[_BlockEntry]) -> frozenset[int]:
        """The major numbers of device-mapper nodes.

        If the machine's numbers are unknown, the usual number counts, unless all devices have it.
        """
        if self._device_mapper_majors is not None:
            return self._device_mapper_majors
        for entry in entries:
            if entry.major != _USUAL_DEVICE_MAPPER_MAJOR:
                return frozenset((_USUAL_DEVICE_MAPPER_MAJOR,))
        return frozenset()
