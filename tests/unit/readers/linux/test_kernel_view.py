"""What the kernel lets a process read about another one."""

from pathlib import Path

import pytest

from profiler.readers.linux.host import KernelView, read_kernel_view
from tests.cgroup_files import write_files

NOTHING = KernelView(schedstat=False, system_calls=False, pressure=False, ptrace_scope=None, cgroup_version=None)


def test_everything_is_read_of_the_process(tmp_path: Path) -> None:
    call = "0 0x3 0x0 0x0 0x0 0x0 0x0 0x7f 0x7f\n"
    write_files(tmp_path / "7", {"schedstat": "5000 0 3\n", "syscall": call, "cgroup": "0::/a\n"})
    psi = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    write_files(tmp_path, {"pressure/cpu": psi, "sys/kernel/yama/ptrace_scope": "1\n"})
    assert read_kernel_view(7, str(tmp_path)) == KernelView(
        schedstat=True, system_calls=True, pressure=True, ptrace_scope=1, cgroup_version=2
    )


def test_nothing_is_made_up(tmp_path: Path) -> None:
    assert read_kernel_view(7, str(tmp_path)) == NOTHING
    write_files(tmp_path / "7", {"schedstat": "0 0 0\n"})  # a kernel without scheduling statistics
    assert read_kernel_view(7, str(tmp_path)) == NOTHING


@pytest.mark.parametrize("cgroup", ["12:cpu,cpuacct:/a\n0::/a\n", "1:name=systemd:/\n"])
def test_both_versions_at_once_count_as_version_1(tmp_path: Path, cgroup: str) -> None:
    write_files(tmp_path, {"self/cgroup": cgroup})
    assert read_kernel_view(proc_folder=str(tmp_path)).cgroup_version == 1


def test_of_this_process_system_calls_can_be_read() -> None:
    assert read_kernel_view().system_calls
