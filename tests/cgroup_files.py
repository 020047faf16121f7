"""The files of a control group, by name, as the kernel writes them in version 1 and 2."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

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


class RecordedProgram(Struct, frozen=True):
    """A program in a group of version 2 of its own: the group's files, shortened, and by the
    program's PSS what it needs and what it keeps mapped of files, without the kernel's memory.
    """

    files: Mapping[str, str]
    needed_bytes: int
    mapped_bytes: int


def _recorded(
    current: int, peak: int, stat: str, *, needed_kib: int, mapped_kib: int
) -> RecordedProgram:
    lines = stat.replace("; ", "\n") + "\n"
    files = {
        "memory.current": f"{current}\n",
        "memory.peak": f"{peak}\n",
        "memory.stat": lines,
        **V2_FILES,
    }
    return RecordedProgram(files, needed_kib * 1024, mapped_kib * 1024)


# On Linux 6.1 (Debian 12): OpenJDK 17 with ZGC and a heap of 64 MB that it maps three times; 64 MB
# in LMDB (py-lmdb 3.0.0), all of it read; a file of 100 MB that the program has locked (mlock); 100 MB of a
# memfd that it maps three times.
V2_PROGRAMS = {
    "zgc": _recorded(
        88_625_152,
        88_829_952,
        "anon 18882560; file 68378624; kernel 1363968; shmem 67108864; file_mapped 68034560; inactive_anon 85987328; "
        "active_anon 4096; inactive_file 1269760; active_file 0; unevictable 0; slab_reclaimable 182104; slab_unreclaimable 196208",
        needed_kib=83_975,
        mapped_kib=0,
    ),
    "lmdb": _recorded(
        74_698_752,
        76_812_288,
        "anon 3289088; file 67584000; kernel 2265088; shmem 0; file_mapped 67481600; inactive_anon 4845568; "
        "active_anon 4096; inactive_file 67567616; active_file 16384; unevictable 0; slab_reclaimable 2009864; slab_unreclaimable 16992",
        needed_kib=3_212,
        mapped_kib=65_536,
    ),
    "mlock": _recorded(
        113_053_696,
        216_793_088,
        "anon 4411392; file 105119744; kernel 3436544; shmem 0; file_mapped 105041920; inactive_anon 4407296; "
        "active_anon 4096; inactive_file 253952; active_file 8192; unevictable 104857600; slab_reclaimable 3130712; slab_unreclaimable 17464",
        needed_kib=106_708,
        mapped_kib=0,
    ),
    "views": _recorded(
        111_415_296,
        111_415_296,
        "anon 5378048; file 104890368; kernel 974848; shmem 104857600; file_mapped 104857600; inactive_anon 110231552; "
        "active_anon 4096; inactive_file 12288; active_file 20480; unevictable 0; slab_reclaimable 245576; slab_unreclaimable 17152",
        needed_kib=107_651,
        mapped_kib=0,
    ),
}


def write_files(root: Path, texts: Mapping[str, str]) -> Path:
    """Write files by their paths below a folder, and the folders that are missing; returns the
    folder.
    """
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root
