"""What the kernel lets this process read about another one, for ``task-profiler doctor``."""

from msgspec import Struct

from profiler.readers.linux import proc


class KernelView(Struct, frozen=True, kw_only=True):
    """The information about a process that is readable here.

    Attributes:
        schedstat: Whether the kernel counts the time that a process waits for a CPU.
        system_calls: Whether the process's system call can be read, as for level 2 of the time breakdown.
    """

    schedstat: bool
    system_calls: bool


def read_kernel_view(pid: int | None = None, proc_folder: str = "/proc") -> KernelView:
    """Find out what is readable of a process; None: of this process."""
    process = f"{proc_folder}/{'self' if pid is None else pid}"
    return KernelView(
        schedstat=any(field != b"0" for field in (proc.read(f"{process}/schedstat") or b"").split()),
        system_calls=bool(proc.read(f"{process}/syscall")),
    )
