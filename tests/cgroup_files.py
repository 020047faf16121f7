"""The files of a control group, by name, as the kernel writes them in version 1 and 2."""

from collections.abc import Mapping
from pathlib import Path

# Recorded on Linux 6.18 (v1, hybrid) and on Linux 6.8 (v2), shortened.
_V1_MEMORY_STAT = (
    "cache 2924544\nrss 847000000\nshmem 0\ninactive_file 1\nactive_file 1\n"
    "total_cache 12582912\ntotal_rss 847000000\ntotal_shmem 2097152\ntotal_mapped_file 0\n"
    "total_inactive_file 1048576\ntotal_active_file 9437184\n"
)
_V2_MEMORY_STAT = (
    "anon 847000000\nfile 12582912\nkernel 5000\nshmem 2097152\ninactive_file "
    "1048576\nactive_file 9437184\nslab_reclaimable 0\n"
)
CPU_STAT = (
    "usage_usec 1276795\nuser_usec 821781\nsystem_usec 455013\ncore_sched.force_idle_usec 0\n"
)
V1_FILES = {
    "cgroup.procs": "",
    "tasks": "",
    "cpuacct.usage": "99208\n",
    "memory.usage_in_bytes": "860000000\n",
    "memory.max_usage_in_bytes": "870000000\n",
    "memory.stat": _V1_MEMORY_STAT,
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
}
V2_FILES = {"cgroup.procs": "", "cpu.stat": CPU_STAT}
V2_MEMORY_FILES = {
    "memory.current": "860000000\n",
    "memory.peak": "870000000\n",
    "memory.stat": _V2_MEMORY_STAT,
    "memory.events": "low 0\nhigh 0\nmax 0\noom 3\noom_kill 2\noom_group_kill 0\n",
}


def write_files(root: Path, texts: Mapping[str, str]) -> Path:
    """Write files by their paths below a folder, and the folders that are missing; returns the
    folder.
    """
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root
