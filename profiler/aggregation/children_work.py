"""What processes have used so far: the work of children counts for whoever waits for them.

That of the other threads of a process does not: of those that wait for a lock, most wait for a
task, and who works weighs for itself.
"""

from collections import Counter
from collections.abc import Collection, Mapping

from profiler.readers.linux.look import ProcessSeen
from profiler.readers.linux.wait_types import BlockedThread


def counts_helpers_work(blocked: BlockedThread) -> bool:
    """Whether the work of those for whom a thread waits counts for it: they are its children."""
    return blocked.helpers == "children"


class ChildrenWork:
    """The processes of a run with their ``children``, and the CPU time of each."""

    def __init__(self) -> None:
        self._processes: Mapping[int, ProcessSeen] = {}
        self._cpu_ns: Counter[int] = Counter()  # of each process's threads that were read
        self.children: Mapping[int, Collection[int]] = {}

    def follow(self, processes: Mapping[int, ProcessSeen]) -> Collection[int]:
        """Take over which processes there are now; returns those that have gone."""
        if processes is self._processes:
            return ()
        self._processes = processes
        children: dict[int, list[int]] = {}
        for pid, process in processes.items():
            children.setdefault(process.parent, []).append(pid)
        self.children = children
        gone = self._cpu_ns.keys() - processes.keys()
        for pid in gone:
            del self._cpu_ns[pid]
        return gone

    def parent_of(self, pid: int) -> int | None:
        """The id of the parent; None if the process is not known."""
        process = self._processes.get(pid)
        return None if process is None else process.parent

    def add(self, pid: int, cpu_ns: int) -> None:
        """Add what a thread of a process has used."""
        self._cpu_ns[pid] += cpu_ns

    def cpu_ns(self, pid: int) -> int:
        """What the threads of a process that were read have used so far."""
        return self._cpu_ns[pid]

    def helpers_ns(self, pid: int) -> int:
        """The CPU time so far of the children for which a process waits, and of theirs."""
        process = self._processes.get(pid)
        total_ns = 0 if process is None else process.children_cpu_ns
        pending = list(self.children.get(pid, ()))
        seen = {pid}  # an id that was given anew while all were read may make a circle
        while pending:
            child = pending.pop()
            if child in seen:
                continue
            seen.add(child)
            total_ns += self._cpu_ns[child] + self._processes[child].children_cpu_ns
            pending.extend(self.children.get(child, ()))
        return total_ns
