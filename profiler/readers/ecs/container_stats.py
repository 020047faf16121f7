"""A response of ``/task/stats``: Docker's stats documents, by Docker id, with cgroup v1's or
v2's memory.

A container without stats is ``null``, ``{}`` or has a ``read`` in year 1. Fields that are zero may
be absent.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TypeAlias

import msgspec
from msgspec import Struct

from profiler.core.json_fields import Json, count
from profiler.core.json_levels import within_levels
from profiler.core.optional_math import sum_known
from profiler.core.timestamps import parse_ns
from profiler.readers import Unavailable
from profiler.readers.container_sample import ContainerSample, memory_fields
from profiler.readers.memory_usage import MemoryCounters, MemoryReading, divide_memory

# The usual major number of device-mapper nodes. Majors above 240 are assigned dynamically: a virtio
# disk may have it.
_USUAL_DEVICE_MAPPER_MAJOR = 253
# Loop devices and md, whose numbers are fixed: they lie on other devices, too.
_STACKED_MAJORS = frozenset((7, 9))
_USUALLY_STACKED_MAJORS = _STACKED_MAJORS | {_USUAL_DEVICE_MAPPER_MAJOR}


# The samples of all containers of a response that have stats, by Docker id; why one cannot be read.
StatsReading: TypeAlias = Mapping[str, ContainerSample | Unavailable]

# The type of all counts is ``object``, so that a wrong type makes only this count absent. The
# decoder skips fields that are not named here (precpu_stats, percpu_usage, throttling_data and most
# of memory_stats.stats) without creating objects for them.


class _CpuUsage(Struct, gc=False):
    total_usage: Json = None


class _CpuStats(Struct, gc=False):
    cpu_usage: _CpuUsage | None = None


class _MemoryDetail(Struct, gc=False):
    total_active_file: Json = None
    active_file: Json = None
    total_inactive_file: Json = None
    inactive_file: Json = None
    total_mapped_file: Json = None
    mapped_file: Json = None
    file_mapped: Json = None
    total_cache: Json = None
    cache: Json = None
    file: Json = None
    total_shmem: Json = None
    shmem: Json = None
    total_rss: Json = None
    rss: Json = None
    anon: Json = None
    slab_reclaimable: Json = None
    slab_unreclaimable: Json = None
    hugetlb: Json = None


class _MemoryStats(Struct, gc=False):
    usage: Json = None
    max_usage: Json = None
    limit: Json = None
    failcnt: Json = None
    stats: _MemoryDetail | None = None


class BlockEntry(Struct, gc=False):
    """Bytes of one operation on one device, as Docker and the control groups count them."""

    major: int = 0
    minor: int = 0
    op: str = ""
    value: Json = 0  # agents that leave out zeros leave it out


class _BlockStats(Struct, gc=False):
    io_service_bytes_recursive: list[BlockEntry] | None = None


class _Counts(Struct, gc=False):  # of an interface, and of the processes
    rx_bytes: Json = None
    tx_bytes: Json = None
    current: Json = None


class _Entry(Struct, gc=False):
    read: Json = None
    cpu_stats: _CpuStats | None = None
    memory_stats: _MemoryStats | None = None
    blkio_stats: _BlockStats | None = None
    networks: dict[str, _Counts | None] | None = None
    pids_stats: _Counts | None = None


@cache
def _decoder() -> msgspec.json.Decoder[dict[str, _Entry | None]]:
    """The decoder of a response. It is slow to make: `run` imports this module and decodes
    nothing.
    """
    return msgspec.json.Decoder(dict[str, _Entry | None])


def decode_stats(
    body: bytes, device_mapper_majors: frozenset[int] | None = None
) -> StatsReading | Unavailable:
    """Decode a response, on a machine with these major numbers of device-mapper nodes; None if
    they are unknown.
    """
    try:
        entries = _entries(within_levels(body))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Unavailable(
            f"/task/stats answered with something else than the stats of containers: {error}"
        )
    samples: dict[str, ContainerSample | Unavailable] = {}
    for docker_id, entry in entries.items():
        if isinstance(entry, Unavailable):
            samples[docker_id] = entry
        elif entry is not None and (read_ns := parse_ns(entry.read)) is not None:
            samples[docker_id] = _sample(entry, read_ns, device_mapper_majors)
    return samples


def _entries(body: bytes) -> Mapping[str, _Entry | Unavailable | None]:
    """All containers, which takes half of the time that each container alone takes; each alone
    where one is malformed.
    """
    try:
        return _decoder().decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        texts = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        return {docker_id: _entry(text) for docker_id, text in texts.items()}


def _entry(text: msgspec.Raw) -> _Entry | Unavailable | None:
    try:
        return msgspec.json.decode(text, type=_Entry | None)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Unavailable(f"the stats of the container are malformed: {error}")


def parse_device_mapper_majors(devices: str) -> frozenset[int] | None:
    """The major numbers of device-mapper nodes in ``/proc/devices``; None if the text does not
    list block devices.
    """
    _, heading, blocks = devices.partition("Block devices:")
    if not heading:
        return None
    majors = set()
    for line in blocks.splitlines():
        number, _, name = line.strip().partition(" ")
        if name == "device-mapper" and number.isdecimal():
            majors.add(int(number))
    return frozenset(majors)


def _sample(
    entry: _Entry, read_ns: int, device_mapper_majors: frozenset[int] | None
) -> ContainerSample:
    """The sample of one container."""
    memory = entry.memory_stats or _MemoryStats()
    reading = _memory(memory)
    cpu_ns = None
    if entry.cpu_stats and entry.cpu_stats.cpu_usage:
        cpu_ns = count(entry.cpu_stats.cpu_usage.total_usage)
    received_bytes = None
    sent_bytes = None
    for network in (entry.networks or {}).values():
        if network is not None:
            received_bytes = sum_known(received_bytes, count(network.rx_bytes))
            sent_bytes = sum_known(sent_bytes, count(network.tx_bytes))
    blocks: Sequence[BlockEntry] = ()
    if entry.blkio_stats:
        blocks = entry.blkio_stats.io_service_bytes_recursive or ()
    block_bytes = sum_block_bytes(blocks, device_mapper_majors)
    return ContainerSample(
        read_ns=read_ns,
        cpu_ns=cpu_ns,
        **memory_fields(reading),
        memory_usage_peak_bytes=count(memory.max_usage),
        memory_limit_bytes=count(memory.limit),
        memory_limit_hits=count(memory.failcnt),
        network_rx_bytes=received_bytes,
        network_tx_bytes=sent_bytes,
        block_read_bytes=block_bytes.get("read"),
        block_write_bytes=block_bytes.get("write"),
        pids=count(entry.pids_stats.current) if entry.pids_stats else None,
    )


def _memory(memory: _MemoryStats) -> MemoryReading | None:
    """The parts of a container's memory; None without its usage.

    Version 1 has ``total_`` members, which include the groups below. Version 2 has other names.
    """
    usage_bytes = count(memory.usage)
    if usage_bytes is None:
        return None
    detail = memory.stats or _MemoryDetail()
    return divide_memory(
        MemoryCounters(
            usage_bytes=usage_bytes,
            active_file_bytes=_first_count(detail.total_active_file, detail.active_file),
            inactive_file_bytes=_first_count(detail.total_inactive_file, detail.inactive_file),
            mapped_file_bytes=_first_count(
                detail.total_mapped_file, detail.mapped_file, detail.file_mapped
            ),
            cache_bytes=_first_count(detail.total_cache, detail.cache, detail.file),
            shmem_bytes=_first_count(detail.total_shmem, detail.shmem),
            anonymous_bytes=_first_count(detail.total_rss, detail.rss, detail.anon),
            reclaimable_slab_bytes=count(detail.slab_reclaimable),
            unreclaimable_slab_bytes=count(detail.slab_unreclaimable),
            huge_page_bytes=count(detail.hugetlb),
        )
    )


def _first_count(*values: Json) -> int | None:
    """The first value that is a count. Not by first_of: each sample comes here six times."""
    for value in values:
        if (size_bytes := count(value)) is not None:
            return size_bytes
    return None


def sum_block_bytes(
    entries: Sequence[BlockEntry], device_mapper_majors: frozenset[int] | None
) -> Mapping[str, int]:
    """Bytes by operation (``read``, ``write``); once of a stack: the larger one of two lower
    bounds.

    Device-mapper nodes, loop devices and md repeat the traffic of the disks below, but the kernel
    attributes some only to the node.
    """
    disks: dict[str, int] = {}
    nodes: dict[tuple[str, int, int], int] = {}
    stacked = _STACKED_MAJORS
    if device_mapper_majors is not None:
        stacked |= device_mapper_majors
    # The usual major number, unless all devices below have it.
    elif not _USUALLY_STACKED_MAJORS.issuperset([entry.major for entry in entries]):
        stacked = _USUALLY_STACKED_MAJORS
    for entry in entries:
        operation = entry.op.lower()
        # Version 1 writes ``Read``; both also list sums (``Total``).
        if operation not in ("read", "write"):
            continue
        value = count(entry.value)
        if value is None:
            continue
        if entry.major in stacked:
            node = (operation, entry.major, entry.minor)
            nodes[node] = nodes.get(node, 0) + value
        else:
            disks[operation] = disks.get(operation, 0) + value
    for (operation, _, _), node_bytes in nodes.items():
        disks[operation] = max(disks.get(operation, 0), node_bytes)
    return disks
