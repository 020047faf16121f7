"""What the kernel lets this process read."""

from msgspec import Struct

from profiler.core.optional_math import first_known
from profiler.readers.linux import proc


class KernelView(Struct, frozen=True, kw_only=True):
    """What is readable of a process and the kernel: levels 1 and 2 of the time breakdown, PSI,
    Yama's setting.
    """

    schedstat: bool
    system_calls: bool
    pressure: bool
    ptrace_scope: int | None
    cgroup_version: int | None


def read_kernel_view(pid: int | None = None, proc_folder: str = "/proc") -> KernelView:
    """Find out what is readable of a process; None: of this process."""
    process = f"{proc_folder}/{first_known(pid, 'self')}"
    scope = proc.read_text(f"{proc_folder}/sys/kernel/yama/ptrace_scope").strip()
    groups = proc.read_text(f"{process}/cgroup").splitlines()
    # The version whose hierarchies have the controllers: with both versions mounted, version 1.
    version = 2 if all(group.startswith("0::") for group in groups) else 1
    counters = (proc.read_or_none(f"{process}/schedstat") or b"").split()
    return KernelView(
        schedstat=bool(set(counters) - {b"0"}),
        system_calls=bool(proc.read_or_none(f"{process}/syscall")),
        pressure=bool(proc.read_or_none(f"{proc_folder}/pressure/cpu")),
        ptrace_scope=int(scope) if scope.isdecimal() else None,
        cgroup_version=version if groups else None,
    )
