"""A response of ``/task/stats``: Docker's stats documents, by Docker id, with cgroup v1's or
v2's memory.

A container without stats is ``null``, ``{}`` or has a ``read`` in year 1. Fields that are zero may
be absent.
"""

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from profiler.core.json_fields import MAX_COUNT, Json, count_or_none, decoded_or_none
from profiler.core.json_levels import within_levels
from profiler.core.optional_math import first_known, first_of, known, sum_known
from profiler.core.timestamps import parse_ns
from profiler.readers import Unavailable
from profiler.readers.container_sample import ContainerSample, memory_fields
from profiler.readers.memory_usage import (
    MemoryCounters,
    MemoryReading,
    divide_memory,
    unknown_kernel_bytes,
)

# The usual major number of device-mapper nodes. Majors above 240 are assigned dynamically: a virtio
# disk may have it.
_USUAL_DEVICE_MAPPER_MAJOR = 253
# Loop devices and md, whose numbers are fixed: they lie on other devices, too.
_STACKED_MAJORS = frozenset((7, 9))
# Of what else lies on other devices, by its name: the numbers are not fixed, or drbd's.
_STACKED_DRIVERS = frozenset(("device-mapper", "mdp", "bcache", "drbd"))
_USUALLY_STACKED_MAJORS = _STACKED_MAJORS | {_USUAL_DEVICE_MAPPER_MAJOR}


# The samples of all containers of a response that have stats, by Docker id; why one cannot be read.
StatsReading: TypeAlias = Mapping[str, "ContainerSample | UndecodedSample | Unavailable"]

# A response is decoded with counts of the type ``_Count``. Where one has a wrong type, each
# container is decoded with counts of the type ``Json``, so that only this count is absent. The
# decoder skips fields that are not named here (precpu_stats, percpu_usage, throttling_data and most
# of memory_stats.stats) without creating objects for them.
_Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
_N = TypeVar("_N")


class _CpuUsage(Struct, Generic[_N], gc=False):
    total_usage: _N | None = None


class _CpuStats(Struct, Generic[_N], gc=False):
    cpu_usage: _CpuUsage[_N] | None = None


class _MemoryDetail(Struct, Generic[_N], gc=False):
    total_active_file: _N | None = None
    active_file: _N | None = None
    total_inactive_file: _N | None = None
    inactive_file: _N | None = None
    total_mapped_file: _N | None = None
    mapped_file: _N | None = None
    file_mapped: _N | None = None
    total_cache: _N | None = None
    cache: _N | None = None
    file: _N | None = None
    total_shmem: _N | None = None
    shmem: _N | None = None
    total_rss: _N | None = None
    rss: _N | None = None
    anon: _N | None = None
    slab_reclaimable: _N | None = None
    slab_unreclaimable: _N | None = None
    hugetlb: _N | None = None


class _MemoryStats(Struct, Generic[_N], gc=False):
    usage: _N | None = None
    max_usage: _N | None = None
    limit: _N | None = None
    failcnt: _N | None = None
    stats: _MemoryDetail[_N] | None = None


class BlockEntry(Struct, gc=False):
    """Bytes of one operation on one device, as Docker and the control groups count them."""

    major: int = 0
    minor: int = 0
    op: str = ""
    value: Json = 0  # agents that leave out zeros leave it out


class _BlockStats(Struct, gc=False):
    io_service_bytes_recursive: Raw = Raw(b"null")


class _NetworkOrPidsCounts(Struct, Generic[_N], gc=False):  # of an interface, and of the processes
    rx_bytes: _N | None = None
    tx_bytes: _N | None = None
    current: _N | None = None


class _ContainerEntry(Struct, Generic[_N], gc=False):
    read: Json = None
    cpu_stats: _CpuStats[_N] | None = None
    memory_stats: _MemoryStats[_N] | None = None
    blkio_stats: _BlockStats | None = None
    networks: dict[str, _NetworkOrPidsCounts[_N] | None] | None = None
    pids_stats: _NetworkOrPidsCounts[_N] | None = None


_Entries: TypeAlias = Mapping[str, _ContainerEntry[int] | Unavailable | None]


# Decoders are slow to make: `run` imports this module and decodes nothing.
@cache
def _decoder() -> msgspec.json.Decoder[dict[str, _ContainerEntry[int] | None]]:
    return msgspec.json.Decoder(dict[str, _ContainerEntry[_Count] | None])


@cache
def _lenient_decoder() -> msgspec.json.Decoder[_ContainerEntry[Json] | None]:
    return msgspec.json.Decoder(_ContainerEntry[Json] | None)


@cache
def _block_decoder() -> msgspec.json.Decoder[list[BlockEntry] | None]:
    return msgspec.json.Decoder(list[BlockEntry] | None)


class UndecodedSample(Struct, eq=False):
    """A decoded sample of a container that counts later.

    What tells at once whether it is news is known: its time, and the memory with all that the
    kernel could drop, which is at least the memory used (None without memory). The rest follows
    from the document when :meth:`decoded_sample` asks for it, ten samples in a row: that takes half
    as long as one at a time.
    """

    read_ns: int
    usage_bytes: int | None
    _decode_container: _ContainerEntry[int]
    _device_mapper_majors: frozenset[int] | None
    _sample: ContainerSample | None = None

    @property
    def kernel_bytes(self) -> int | None:
        """The bound of :attr:`ContainerSample.memory_kernel_bytes`, by the entry alone."""
        memory = self._decode_container.memory_stats
        if memory is None or memory.usage is None or memory.stats is None:
            return None
        detail = memory.stats
        if detail.slab_reclaimable is not None:
            return None
        return unknown_kernel_bytes(memory.usage, _anonymous_bytes(detail), _cache_bytes(detail))

    def decoded_sample(self) -> ContainerSample:
        """The sample, which is made once."""
        if self._sample is None:
            self._sample = _container_sample(
                self._decode_container, self.read_ns, self._device_mapper_majors
            )
        return self._sample


def decoded_sample_of(
    of_container: ContainerSample | UndecodedSample | Unavailable | None,
) -> ContainerSample | None:
    """The sample in a container's part of a reading; None without one."""
    if isinstance(of_container, UndecodedSample):
        return of_container.decoded_sample()
    return of_container if isinstance(of_container, ContainerSample) else None


def decode_stats_lazily(
    body: bytes, device_mapper_majors: frozenset[int] | None = None
) -> "dict[str, ContainerSample | UndecodedSample | Unavailable] | Unavailable":
    """Decode a response, on a machine with these major numbers of device-mapper nodes; None if
    they are unknown.
    """
    try:
        entries = _decode_entries(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Unavailable(
            f"/task/stats answered with something else than the stats of containers: {error}"
        )
    samples: dict[str, ContainerSample | UndecodedSample | Unavailable] = {}
    for docker_id, entry in entries.items():
        if isinstance(entry, Unavailable):
            samples[docker_id] = entry
        elif entry is not None and (read_ns := parse_ns(entry.read)) is not None:
            usage_bytes = None if entry.memory_stats is None else entry.memory_stats.usage
            samples[docker_id] = UndecodedSample(read_ns, usage_bytes, entry, device_mapper_majors)
    return samples


def decode_stats(
    body: bytes, device_mapper_majors: frozenset[int] | None = None
) -> Mapping[str, ContainerSample | Unavailable] | Unavailable:
    """Decode a response like :func:`decode_stats_lazily`, and make all samples."""
    reading = decode_stats_lazily(body, device_mapper_majors)
    if isinstance(reading, Unavailable):
        return reading
    return {
        docker_id: of_container.decoded_sample()
        if isinstance(of_container, UndecodedSample)
        else of_container
        for docker_id, of_container in reading.items()
    }


def _decode_entries(body: bytes) -> _Entries:
    """All containers, which takes half of the time that each container alone takes; each alone
    where one is malformed.
    """
    try:
        return _decoder().decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        texts = msgspec.json.decode(within_levels(body), type=dict[str, Raw])
        return {docker_id: _decode_container(text) for docker_id, text in texts.items()}


def _decode_container(text: Raw) -> _ContainerEntry[int] | Unavailable | None:
    try:
        entry = _lenient_decoder().decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Unavailable(f"the stats of the container are malformed: {error}")
    return known(_without_mistyped_counts, entry)


def _without_mistyped_counts(entry: _ContainerEntry[Json]) -> _ContainerEntry[int]:
    """The entry without the counts of a wrong type."""
    memory = entry.memory_stats or _MemoryStats()
    cpu = entry.cpu_stats or _CpuStats()
    networks: dict[str, _NetworkOrPidsCounts[int] | None] = {}
    for name, network in (entry.networks or {}).items():
        networks[name] = _NetworkOrPidsCounts(**_counts_by_name(network))
    return _ContainerEntry(
        read=entry.read,
        cpu_stats=_CpuStats(cpu_usage=_CpuUsage(**_counts_by_name(cpu.cpu_usage))),
        memory_stats=_MemoryStats(
            **{**_counts_by_name(memory), "stats": _MemoryDetail(**_counts_by_name(memory.stats))}
        ),
        blkio_stats=entry.blkio_stats,
        networks=networks,
        pids_stats=_NetworkOrPidsCounts(**_counts_by_name(entry.pids_stats)),
    )


def _counts_by_name(part: Struct | None) -> dict[str, Any]:
    """The counts of a part by their names."""
    names = () if part is None else part.__struct_fields__
    return {name: count_or_none(getattr(part, name)) for name in names}


def parse_device_mapper_majors(devices: str) -> frozenset[int] | None:
    """The major numbers in ``/proc/devices`` of device-mapper and others that lie on devices; None
    if the text does not list block devices.
    """
    _, heading, blocks = devices.partition("Block devices:")
    if not heading:
        return None
    majors = set()
    for line in blocks.splitlines():
        number, _, name = line.strip().partition(" ")
        if name in _STACKED_DRIVERS and number.isdecimal():
            majors.add(int(number))
    return frozenset(majors)


def _container_sample(
    entry: _ContainerEntry[int], read_ns: int, device_mapper_majors: frozenset[int] | None
) -> ContainerSample:
    """The sample of one container."""
    memory = entry.memory_stats or _MemoryStats()
    cpu_ns = None
    if entry.cpu_stats and entry.cpu_stats.cpu_usage:
        cpu_ns = entry.cpu_stats.cpu_usage.total_usage
    received_bytes = None
    sent_bytes = None
    for network in (entry.networks or {}).values():
        if network is not None:
            received_bytes = sum_known(received_bytes, network.rx_bytes)
            sent_bytes = sum_known(sent_bytes, network.tx_bytes)
    block_bytes: Mapping[str, int] = {}
    if entry.blkio_stats:
        text = bytes(entry.blkio_stats.io_service_bytes_recursive)
        block_bytes = _decoded_block_bytes(text, device_mapper_majors)
    reading = _memory_reading(memory)
    return ContainerSample(
        read_ns=read_ns,
        cpu_ns=cpu_ns,
        **memory_fields(reading),
        is_memory_impossible=reading is None and memory.usage is not None,
        memory_usage_peak_bytes=memory.max_usage,
        memory_limit_bytes=memory.limit,
        memory_limit_hits=memory.failcnt,
        network_rx_bytes=received_bytes,
        network_tx_bytes=sent_bytes,
        block_read_bytes=block_bytes.get("read"),
        block_write_bytes=block_bytes.get("write"),
        pids=entry.pids_stats.current if entry.pids_stats else None,
    )


def _memory_reading(memory: _MemoryStats[int]) -> MemoryReading | None:
    """The parts of a container's memory; None without its usage, or if they contradict it.

    Version 1 has ``total_`` members, which include the groups below. Version 2 has other names.
    """
    if memory.usage is None:
        return None
    detail = memory.stats or _MemoryDetail()
    return divide_memory(
        MemoryCounters(
            usage_bytes=memory.usage,
            active_file_bytes=first_known(detail.total_active_file, detail.active_file),
            inactive_file_bytes=first_known(detail.total_inactive_file, detail.inactive_file),
            mapped_file_bytes=first_of(
                (detail.total_mapped_file, detail.mapped_file, detail.file_mapped)
            ),
            cache_bytes=_cache_bytes(detail),
            shmem_bytes=first_known(detail.total_shmem, detail.shmem),
            anonymous_bytes=_anonymous_bytes(detail),
            reclaimable_slab_bytes=detail.slab_reclaimable,
            unreclaimable_slab_bytes=detail.slab_unreclaimable,
            huge_page_bytes=detail.hugetlb,
        )
    )


def _cache_bytes(detail: _MemoryDetail[int]) -> int | None:
    return first_of((detail.total_cache, detail.cache, detail.file))


def _anonymous_bytes(detail: _MemoryDetail[int]) -> int | None:
    return first_of((detail.total_rss, detail.rss, detail.anon))


# Most batches use no disk for most of the time: the text of each container is the same again.
@lru_cache(maxsize=32)
def _decoded_block_bytes(
    text: bytes, device_mapper_majors: frozenset[int] | None
) -> Mapping[str, int]:
    """The bytes of a text with block devices; none of a malformed one."""
    return sum_block_bytes(decoded_or_none(_decode_block_entries, text) or (), device_mapper_majors)


def _decode_block_entries(text: bytes) -> Sequence[BlockEntry]:
    return _block_decoder().decode(text) or ()


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
        value = count_or_none(entry.value)
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
