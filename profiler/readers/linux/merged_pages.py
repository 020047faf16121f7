"""What the kernel has merged of a command's memory with equal pages (KSM, ``MADV_MERGEABLE``).

A control group counts a merged page once, the RSS of a process each mapping of it. It is one page
until one of its holders writes to it, and on a machine that does not merge it never is one: a
program needs its memory unmerged.
"""

import os
from collections.abc import Sequence

from profiler.readers.linux import proc
from profiler.readers.linux.process_tree import ProcessReading

_RUN = "/sys/kernel/mm/ksm/run"
# What is less in a process is not looked for.
_MIN_BYTES = 4 * 2**20


class MergedPages:
    """The merged pages of the processes of one tree, if the machine merges any at the first look:
    else nothing is read.
    """

    def __init__(self) -> None:
        self._are_merged: bool | None = None

    def mapped_bytes(self, processes: Sequence[ProcessReading]) -> int:
        """Each mapping of a merged page, of which all but one are saved; not that which a process
        has from its fork. Before Linux 5.19, and of other users' processes, 0.
        """
        if self._are_merged is None:
            self._are_merged = (proc.read_or_none(_RUN) or b"").startswith(b"1")
        if not self._are_merged:
            return 0
        by_pid = {process.pid: _merged_bytes(process) for process in processes}
        mapped_bytes = 0
        for process in processes:
            inherited_bytes = by_pid.get(process.parent_pid, 0) if process.is_forked else 0
            mapped_bytes += max(by_pid[process.pid] - inherited_bytes, 0)
        return mapped_bytes


def _merged_bytes(process: ProcessReading) -> int:
    anonymous_bytes = process.anonymous_bytes or 0
    if anonymous_bytes < _MIN_BYTES:
        return 0
    pages = (proc.read_or_none(f"/proc/{process.pid}/ksm_merging_pages") or b"").strip()
    if not pages.isdigit():
        return 0
    return min(int(pages) * os.sysconf("SC_PAGE_SIZE"), anonymous_bytes)
