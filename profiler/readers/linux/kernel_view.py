"""What the kernel lets this process read about another one, for ``task-profiler doctor``."""

from msgspec import Struct

from profiler.readers.linux import proc


class KernelView(Struct, frozen=True, kw_only=True):
    """The information about a process and the kernel that is readable here.

    ``schedstat`` is the time that a process waits for a CPU, ``system_calls`` the call in progress, as for level 2 of
    the time breakdown, ``pressure`` the pressure stall information (PSI) of the CPU, and ``ptrace_scope`` Yama's
    setting; None without Yama. ``cgroup_version`` is None without control groups.
    """

    schedstat: bool
    system_calls: bool
    pressure: bool
    ptrace_scope: int | None
    cgroup_version: int | None


def read_kernel_view(pid: int | None = None, proc_folder: str = "/proc") -> KernelView:
    """Find out what is readable of a process; None: of this process."""
    process = f"{proc_folder}/{'self' if pid is None else pid}"
    scope = proc.read_text(f"{proc_folder}/sys/kernel/yama/ptrace_scope").strip()
    groups = proc.read_text(f"{process}/cgroup").splitlines()
    # The version whose hierarchies have the controllers: with both versions mounted, version 1.
    version = 2 if all(group.startswith("0::") for group in groups) else 1
    return KernelView(
        schedstat=any(field != b"0" for field in (proc.read(f"{process}/schedstat") or b"").split()),
        system_calls=bool(proc.read(f"{process}/syscall")),
        pressure=bool(proc.read(f"{proc_folder}/pressure/cpu")),
        ptrace_scope=int(scope) if scope.isdecimal() else None,
        cgroup_version=version if groups else None,
    )
