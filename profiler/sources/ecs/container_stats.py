"""A response of ``/task/stats``: Docker's stats documents, by Docker id.

The memory fields are those of cgroup v1 or v2. A container without stats is ``null`` (endpoint v3,
Fargate), ``{}`` (endpoint v4 on EC2) or has a ``read`` in year 1. Docker omits fields that are zero, so every
field is optional.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from profiler.core.json_fields import Json, count, text
from profiler.core.optional_math import sum_known
from profiler.core.timestamps import parse_ns
from profiler.sources import Unavailable

# The major number of device-mapper nodes. They are stacked on other devices and repeat their traffic.
_DEVICE_MAPPER_MAJOR = 253


class ContainerSample(Struct, frozen=True, kw_only=True):
    """A container's usage at ``read_ns`` (wall-clock time). Counters start at 0 when the container starts."""

    read_ns: int
    cpu_ns: int | None = None
    memory_used_bytes: int | None = None
    memory_usage_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None
    memory_limit_hits: int | None = None
    network_rx_bytes: int | None = None
    network_tx_bytes: int | None = None
    block_read_bytes: int | None = None
    block_write_bytes: int | None = None
    pids: int | None = None


class StatsReading(Struct, frozen=True, kw_only=True):
    """All containers of a response: samples, ids without stats, and the errors of entries that cannot be decoded."""

    samples: Mapping[str, ContainerSample]
    without_stats: frozenset[str]
    refused: Mapping[str, str]


# The type of all leaves is ``object``, so that a wrong type invalidates this leaf only. The decoder skips fields
# that are not named here (precpu_stats, percpu_usage, throttling_data and most of memory_stats.stats) without
# creating objects for them.
class _CpuUsage(Struct):
    total_usage: Json = None


class _CpuStats(Struct):
    cpu_usage: _CpuUsage | None = None


class _MemoryDetail(Struct):
    total_inactive_file: Json = None
    inactive_file: Json = None
    total_cache: Json = None
    cache: Json = None


class _MemoryStats(Struct):
    usage: Json = None
    max_usage: Json = None
    limit: Json = None
    failcnt: Json = None
    stats: _MemoryDetail | None = None


class _BlockEntry(Struct):
    major: Json = None
    minor: Json = None
    op: Json = None
    value: Json = None


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


_answer_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_entry_decoder = msgspec.json.Decoder(_Entry)


def decode_stats(body: bytes) -> StatsReading | Unavailable:
    """Decode a response. An entry that cannot be decoded does not affect the others."""
    try:
        entries = _answer_decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return Unavailable(f"/task/stats answered with something else than a JSON object: {error}")
    samples: dict[str, ContainerSample] = {}
    refused: dict[str, str] = {}
    without_stats: set[str] = set()
    for docker_id, raw in entries.items():
        if bytes(raw) in (b"null", b"{}"):
            without_stats.add(docker_id)
            continue
        try:
            entry = _entry_decoder.decode(raw)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            refused[docker_id] = str(error)
            continue
        sample = _sample(entry)
        if sample is None:
            without_stats.add(docker_id)
        else:
            samples[docker_id] = sample
    return StatsReading(samples=samples, without_stats=frozenset(without_stats), refused=refused)


def _sample(entry: _Entry) -> ContainerSample | None:
    read_ns = parse_ns(entry.read)
    if read_ns is None:
        return None
    cpu = entry.cpu_stats.cpu_usage if entry.cpu_stats else None
    memory = entry.memory_stats or _MemoryStats()
    # Old agents on Fargate use the singular.
    networks = (entry.networks or entry.network or {}).values()
    blocks = (entry.blkio_stats.io_service_bytes_recursive if entry.blkio_stats else None) or ()
    return ContainerSample(
        read_ns=read_ns,
        cpu_ns=count(cpu.total_usage) if cpu else None,
        memory_used_bytes=_working_set(memory),
        memory_usage_peak_bytes=count(memory.max_usage),
        memory_limit_bytes=count(memory.limit),
        memory_limit_hits=count(memory.failcnt),
        network_rx_bytes=sum_known(*(count(network.rx_bytes) for network in networks)),
        network_tx_bytes=sum_known(*(count(network.tx_bytes) for network in networks)),
        block_read_bytes=_block_bytes(blocks, "read"),
        block_write_bytes=_block_bytes(blocks, "write"),
        pids=count(entry.pids_stats.current) if entry.pids_stats else None,
    )


def _working_set(memory: _MemoryStats) -> int | None:
    """Memory without inactive page cache, as ``docker stats`` computes it.

    cgroup v1: usage - total_inactive_file; v2: usage - inactive_file; v1 without either:
    usage - cache. At least 0: the kernel does not read the two values at the same moment.
    """
    usage = count(memory.usage)
    if usage is None:
        return None
    detail = memory.stats or _MemoryDetail()
    for value in (detail.total_inactive_file, detail.inactive_file, detail.total_cache, detail.cache):
        reclaimable = count(value)
        if reclaimable is not None:
            return max(usage - reclaimable, 0)
    return usage


def _block_bytes(entries: Iterable[_BlockEntry], operation: str) -> int | None:
    """Bytes of one operation. A stack of devices is counted once, at its lowest layer.

    cgroup v1 writes ``Read``, v2 ``read``; both also list sums (``Total``, ``Sync``, ``Async``).
    If there are only device-mapper nodes, their order is unknown, and the largest value counts.
    """
    mapped: dict[object, int] = {}
    physical: list[int] = []
    for entry in entries:
        if (text(entry.op) or "").lower() != operation:
            continue
        value = count(entry.value)
        if value is None:
            continue
        if entry.major == _DEVICE_MAPPER_MAJOR:
            minor = count(entry.minor)
            mapped[minor] = mapped.get(minor, 0) + value
        else:
            physical.append(value)
    if physical:
        return sum(physical)
    return max(mapped.values(), default=None)
