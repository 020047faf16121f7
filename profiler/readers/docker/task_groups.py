"""The control groups of the containers and tasks of an instance, below its ``/sys/fs/cgroup``.

The paths follow from what Docker says, because another container sees neither the processes nor
their groups. With cgroup version 1 the agent puts containers into ``/ecs/TASKID/CONTAINERID``, with
version 2 and systemd into ``ecstasks.slice/ecstasks-TASKID.slice/docker-CONTAINERID.scope``.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.optional_math import any_known
from profiler.readers import Unavailable
from profiler.readers.cgroup.container_group import ContainerCgroup, GroupReading
from profiler.readers.cgroup.hierarchy import (
    CPUACCT,
    HUGETLB,
    MEMORY,
    UNIFIED,
    machine_oom_kills,
    parse_limit_bytes,
    parse_number,
)
from profiler.readers.container_sample import ContainerSample, memory_fields
from profiler.readers.ecs.container_stats import BlockEntry, sum_block_bytes
from profiler.readers.linux import proc
from profiler.readers.memory_usage import MemoryReading

_GONE = Unavailable("the control group does not exist", is_gone=True)
_BLKIO = "blkio"
_PIDS = "pids"
_CONTROLLERS = (MEMORY, CPUACCT, HUGETLB, _BLKIO, _PIDS)
_V1_BLOCKS = "blkio.throttle.io_service_bytes_recursive"
_V2_BLOCKS = "io.stat"
_LIMIT_HITS = "memory.failcnt"
_PIDS_NOW = "pids.current"
_SLICE = ".slice"
_SCOPE = ".scope"
_SCOPE_PREFIX = "docker-"
# "8:0 Read 4096" in version 1, "8:0 rbytes=4096 wbytes=0 rios=1 …" in version 2
_V1_BLOCK = re.compile(rb"^(\d+):(\d+) (Read|Write) (\d+)$", re.MULTILINE)
_V2_BLOCK = re.compile(rb"^(\d+):(\d+) rbytes=(\d+) wbytes=(\d+)", re.MULTILINE)


class OpenGroup(ContainerCgroup):
    """The open files of a group.

    ``folders`` are by controller of version 1, or the only one has the name UNIFIED.
    """

    is_open = True
    is_missing = False

    def __init__(
        self, folders: Mapping[str, str], device_mapper_majors: frozenset[int] | None
    ) -> None:
        self._is_v1 = UNIFIED not in folders
        unified = folders.get(UNIFIED)
        by_controller = {name: folders.get(name, unified) for name in _CONTROLLERS}
        super().__init__(
            by_controller[MEMORY],
            by_controller[CPUACCT],
            by_controller[HUGETLB],
            is_v1=self._is_v1,
        )
        self._blocks = _V1_BLOCKS if self._is_v1 else _V2_BLOCKS
        self._device_mapper_majors = device_mapper_majors
        self._last_blocks: tuple[bytes, Mapping[str, int]] = (b"", {})
        self._last: ContainerSample | None = None
        for controller, name in ((_BLKIO, self._blocks), (_PIDS, _PIDS_NOW), (MEMORY, _LIMIT_HITS)):
            self._files |= proc.open_files(by_controller[controller] or "", (name,))
        self._memory_limit_bytes = parse_limit_bytes(
            proc.read_text(f"{by_controller[MEMORY]}/{self._names.limit}")
        )

    def read_sample(self, read_ns: int) -> ContainerSample | Unavailable:
        """The counters now; ``is_gone`` when the group is removed.

        Without CPU time and changes of the memory, only blocks can differ: version 2 counts what is
        written later.
        """
        last = self._last
        cpu_ns = self.cpu_ns()
        usage = self.read_usage_text()
        is_at_rest = cpu_ns is not None and self._rest.is_still_idle((cpu_ns, usage), read_ns)
        if last is not None and is_at_rest:
            blocks = self._last_blocks[1]
            if not self._is_v1:
                blocks = self._block_bytes()
            read_bytes = blocks.get("read")
            write_bytes = blocks.get("write")
            self._last = replace(
                last, read_ns=read_ns, block_read_bytes=read_bytes, block_write_bytes=write_bytes
            )
            return self._last
        memory = self.read_memory_parts(usage)
        peak_bytes = self.mark_bytes()
        if not any_known(cpu_ns, memory, peak_bytes):
            return _GONE
        blocks = self._block_bytes()
        self._last = ContainerSample(
            read_ns=read_ns,
            cpu_ns=cpu_ns,
            **memory_fields(memory),
            is_memory_impossible=memory is None and parse_number(usage) is not None,
            memory_huge_page_bytes=self._huge_page_bytes(memory),
            memory_usage_peak_bytes=peak_bytes,
            memory_limit_bytes=self._memory_limit_bytes,
            memory_limit_hits=self._memory_limit_hits(peak_bytes),
            block_read_bytes=blocks.get("read"),
            block_write_bytes=blocks.get("write"),
            pids=parse_number(proc.reread_file(self._files, _PIDS_NOW)),
        )
        return self._last

    def _huge_page_bytes(self, memory: MemoryReading | None) -> int | None:
        """The huge pages that are no part of the memory used."""
        if memory is not None and memory.has_huge_pages:
            return None
        return self.huge_page_bytes()

    def _memory_limit_hits(self, peak_bytes: int | None) -> int | None:
        """Below half the limit there is no new one: the kernel asks for only some pages more
        than it needs.
        """
        last = self._last
        limit_bytes = self._memory_limit_bytes
        if last is not None and (
            limit_bytes is None or (peak_bytes is not None and 2 * peak_bytes < limit_bytes)
        ):
            return last.memory_limit_hits
        return parse_number(proc.reread_file(self._files, _LIMIT_HITS))

    def read_totals(self) -> GroupReading | Unavailable:
        """The totals of the group, which a task's has also after its containers' ends.

        Version 1 does not add the kills of groups below it: without own ones, they are unknown.
        """
        reading = self.read_counters()
        if reading is None:
            return _GONE
        if self._is_v1 and not reading.oom_kills:
            return replace(reading, oom_kills=None)
        return reading

    def _block_bytes(self) -> Mapping[str, int]:
        """The bytes read and written. A file with the content of last time is not parsed again:
        most batches use no disk for most of the time.
        """
        text = proc.reread_file(self._files, self._blocks)
        if text != self._last_blocks[0]:
            parse = _v1_block_entries if self._is_v1 else _v2_block_entries
            blocks = sum_block_bytes(tuple(parse(text)), self._device_mapper_majors)
            self._last_blocks = (text, blocks)
        return self._last_blocks[1]


class UnopenedGroup(Struct, frozen=True):
    """A group that is not open: each of its readings is the reason. ``is_missing``: it could not
    be opened, and may be there later.
    """

    reason: Unavailable
    is_missing: bool = False
    is_open = False

    def read_sample(self, read_ns: int) -> Unavailable:  # noqa: ARG002  as of an open group
        return self.reason

    def read_totals(self) -> Unavailable:
        return self.reason

    def cpu_ns(self) -> None:
        """Nothing was counted."""

    def mark_bytes(self) -> None:
        """Nothing was counted."""

    def close(self) -> None:
        """Nothing is open."""


CLOSED_GROUP = UnopenedGroup(_GONE)


def unopened_missing_group(unavailable: Unavailable) -> UnopenedGroup:
    """A group that could not be opened: its container runs, so its readings are missing, not
    over.
    """
    return UnopenedGroup(replace(unavailable, is_gone=False), is_missing=True)


class InstanceCgroups:
    """``root`` is the machine's ``/sys/fs/cgroup``."""

    def __init__(
        self, root: str = "/sys/fs/cgroup", device_mapper_majors: frozenset[int] | None = None
    ) -> None:
        self._root = root
        self._is_v1 = not Path(root, "cgroup.controllers").exists()
        self._device_mapper_majors = device_mapper_majors

    def open_container(self, docker_id: str, cgroup_parent: str) -> OpenGroup | Unavailable:
        """The group of a container; ``cgroup_parent`` is that of its inspect document, which may
        be empty.
        """
        return self._open_first_existing(container_paths(docker_id, cgroup_parent))

    def open_task(self, cgroup_parent: str) -> OpenGroup | Unavailable:
        """The task's group, which the agent keeps after the containers' ends; unavailable if it
        makes none.
        """
        if not cgroup_parent:
            return _GONE
        return self._open_first_existing((group_path(cgroup_parent),))

    def cpu_ns_of_unseen(
        self, cgroup_parent: str, seen_ids: AbstractSet[str]
    ) -> Mapping[str, int | None]:
        """The CPU time, by Docker id, of the containers in the task's group that are not among
        the ``seen_ids``: Docker makes a container's group, and works in it, before the container
        starts.
        """
        if not cgroup_parent:
            return {}
        hierarchy = CPUACCT if self._is_v1 else UNIFIED
        unseen: dict[str, int | None] = {}
        for name in _groups_in(f"{self._root}/{hierarchy}/{group_path(cgroup_parent)}"):
            docker_id = docker_id_of_group(name, cgroup_parent)
            if docker_id in seen_ids:
                continue
            group = self.open_container(docker_id, cgroup_parent)
            if isinstance(group, OpenGroup):
                unseen[docker_id] = group.cpu_ns()
                group.close()
        return unseen

    def machine_oom_kills(self) -> int | None:
        """The kernel's kills on the whole machine since its boot."""
        return machine_oom_kills()

    def _open_first_existing(self, paths: tuple[str, ...]) -> OpenGroup | Unavailable:
        for path in paths:
            folders: dict[str, str] = {}
            for controller in _CONTROLLERS if self._is_v1 else (UNIFIED,):
                folder = Path(self._root, controller, path)
                if folder.is_dir():
                    folders[controller] = str(folder)
            if folders:
                return OpenGroup(folders, self._device_mapper_majors)
        return _GONE


def container_paths(docker_id: str, cgroup_parent: str) -> tuple[str, ...]:
    """Where a container's group may be, below the top.

    Without a parent that depends on Docker's cgroup driver.
    """
    if not cgroup_parent:
        return f"docker/{docker_id}", f"system.slice/docker-{docker_id}.scope"
    name = docker_id
    if cgroup_parent.endswith(_SLICE):
        name = f"{_SCOPE_PREFIX}{docker_id}{_SCOPE}"
    return (f"{group_path(cgroup_parent)}/{name}",)


def _groups_in(folder: str) -> Sequence[str]:
    """The names of the groups in a group; none if it is gone, or is removed meanwhile."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except OSError:
        return ()


def docker_id_of_group(name: str, cgroup_parent: str) -> str:
    """The Docker id of the container whose group has this name below ``cgroup_parent``."""
    if not cgroup_parent.endswith(_SLICE):
        return name
    return name.removeprefix(_SCOPE_PREFIX).removesuffix(_SCOPE)


def group_path(cgroup_parent: str) -> str:
    """The path of a group below the top. systemd puts the slice ``a-b.slice`` into ``a.slice``."""
    above, _, name = cgroup_parent.strip("/").rpartition("/")
    if not name.endswith(_SLICE) or above:
        return cgroup_parent.strip("/")
    words = name.removesuffix(_SLICE).split("-")
    return "/".join("-".join(words[:count]) + _SLICE for count in range(1, len(words) + 1))


def _v1_block_entries(text: bytes) -> Iterator[BlockEntry]:
    for major, minor, operation, value in _V1_BLOCK.findall(text):
        yield BlockEntry(
            major=int(major), minor=int(minor), op=operation.decode(), value=int(value)
        )


def _v2_block_entries(text: bytes) -> Iterator[BlockEntry]:
    for major, minor, read_bytes, written_bytes in _V2_BLOCK.findall(text):
        yield BlockEntry(major=int(major), minor=int(minor), op="read", value=int(read_bytes))
        yield BlockEntry(major=int(major), minor=int(minor), op="write", value=int(written_bytes))
