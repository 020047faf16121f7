"""Opens the counters of a process's control groups that show for how long its threads have waited
for a CPU: because the CPU quota was used up (version 1 and 2), or for any reason (version 2).
"""

import os

from profiler.core.files import open_or_none
from profiler.readers.cgroup.hierarchy import UNIFIED
from profiler.readers.cgroup.process_groups import ProcessGroups
from profiler.readers.linux import proc
from profiler.readers.linux.cpu_pressure import PressureFiles, open_machine_pressure

_CPU = "cpu"
_MEMORY = "memory"
# Every group of version 2 has it, except the root, whose pressure is the machine's.
_EVENTS = "cgroup.events"
_QUOTA = {"cpu": "cpu.cfs_quota_us", UNIFIED: "cpu.max"}
_WITHOUT_QUOTA = (b"-1", b"max")


def open_group_pressure(pid: int, proc_folder: str = "/proc") -> PressureFiles:
    """The counters of a process's groups, by its own mounts, else by this process's, if these show
    them; the machine's pressure if the group has none.

    A group above is not read: its other programs may be what waits. The pressure of a group in
    which this process is, too, such as a session's, is only the most, as the machine's is. Without
    a quota at this moment, the throttled time is not read either, which would take a fifth of the
    time for the threads. Whether the group is frozen is told, too, and whether it waits for
    memory.
    """
    groups = ProcessGroups(pid, proc_folder)
    cpu = _CPU if groups.has_v1_controller(_CPU) else UNIFIED
    cpu_folder = groups.folder(cpu)
    unified_folder = groups.folder(UNIFIED)
    cpu_stat = None
    if cpu_folder is not None and _has_quota(f"{cpu_folder}/{_QUOTA[cpu]}"):
        cpu_stat = open_or_none(f"{cpu_folder}/cpu.stat")
    pressure = None
    memory = None
    events = None
    if groups.has_v1_controller(_MEMORY):
        memory = open_or_none(f"{groups.folder(_MEMORY)}/memory.oom_control")
    if unified_folder is not None:
        events = open_or_none(f"{unified_folder}/{_EVENTS}")
    if events is not None:
        pressure = open_or_none(f"{unified_folder}/cpu.pressure")
        if memory is None:  # else its limit is that of version 1, of which this says nothing
            memory = open_or_none(f"{unified_folder}/memory.pressure")
    freezer_file = groups.freezer_file()
    freezer = None if freezer_file is None else open_or_none(freezer_file)
    is_of_group = pressure is not None and not groups.is_shared(UNIFIED)
    if pressure is None:
        pressure = open_machine_pressure(proc_folder)
    cpus = os.cpu_count() or 1
    return PressureFiles(
        pressure,
        cpu_stat,
        events,
        memory=memory,
        freezer=freezer,
        is_of_group=is_of_group,
        cpus=cpus,
    )


def _has_quota(path: str) -> bool:
    """Whether the file names one, or cannot be read."""
    return not (proc.read_or_none(path) or b"").startswith(_WITHOUT_QUOTA)
