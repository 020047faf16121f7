"""The machine: memory, swap, disks, what this process itself uses, and what the kernel lets it
read.
"""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from profiler.readers.linux import proc
from profiler.readers.linux.host import (
    memory_of_others,
    others_vcpu_used,
    parse_busy_ns,
    parse_instance_type,
    parse_processor_model,
    read_host,
)
from profiler.readers.linux.instance import (
    MAX_DISKS,
    SwapCounters,
    disk_mounts,
    read_instance,
    read_swap_counters,
)
from profiler.readers.linux.kernel_view import KernelView, read_kernel_view
from tests.cases import each_case
from tests.cgroup_files import write_files
from tests.values import present

# As in a container on an EC2 instance: overlay root, volumes of which two are on the instance's
# disk and two on one of their own, an EFS volume, files that Docker and the NVIDIA runtime mount,
# folders of ECS.
MOUNTS = r"""
532 433 0:54 / / rw,relatime master:1 - overlay overlay rw,lowerdir=/a:/b,upperdir=/c,workdir=/d
533 532 0:57 / /proc rw,nosuid - proc proc rw
534 532 0:58 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k
540 532 259:1 /var/lib/docker/containers/1/resolv.conf /etc/resolv.conf rw,noatime - xfs /dev/nvme0n1p1 rw
541 532 259:1 /var/lib/docker/containers/1/hosts /etc/hosts rw,noatime - xfs /dev/nvme0n1p1 rw
542 532 259:1 /usr/lib64/libnvidia-ml.so.1 /usr/lib/libnvidia-ml.so.1 ro - xfs /dev/nvme0n1p1 rw
543 532 259:1 /var/lib/ecs/deps/execute-command/bin /managed-agents/x rw,noatime - xfs /dev/nvme0n1p1 rw
544 532 259:1 /var/lib/ecs/data/metadata/1 /opt/ecs/metadata/bcc7af6b rw,noatime - xfs /dev/nvme0n1p1 rw
549 532 259:1 /var/lib/docker/volumes/a/_data /models rw,noatime - xfs /dev/nvme0n1p1 rw
550 532 259:1 /opt/scratch /scratch/deep\040er rw,noatime - xfs /dev/nvme0n1p1 rw
551 532 259:3 / /data rw,noatime shared:5 - ext4 /dev/nvme1n1 rw
552 532 259:3 /sub /data/sub rw,noatime shared:5 - ext4 /dev/nvme1n1 rw
553 532 0:99 / /efs rw,relatime - nfs4 127.0.0.1:/ rw,vers=4.1
"""
FILES = {"/etc/resolv.conf", "/etc/hosts", "/usr/lib/libnvidia-ml.so.1"}


def test_swap_counts_pages_unless_the_kernel_has_no_counters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files, page_bytes = (
        {"/proc/vmstat": b"nr_free_pages 5\npswpin 3\npswpout 20\n"},
        os.sysconf("SC_PAGE_SIZE"),
    )
    monkeypatch.setattr(proc, "read_or_none", files.get)
    assert read_swap_counters() == SwapCounters(out_bytes=20 * page_bytes, in_bytes=3 * page_bytes)
    files["/proc/vmstat"] = b"pswpin 3\n"
    assert read_swap_counters() is None


def test_this_machine_can_be_read_and_its_architecture_has_the_name_of_ecs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for machine, name in {"x86_64": "X86_64", "aarch64": "ARM64", "riscv64": "riscv64"}.items():
        monkeypatch.setattr(os, "uname", lambda machine=machine: SimpleNamespace(machine=machine))
        assert read_host().cpu_architecture == name
    reading = read_instance()
    assert not hasattr(reading, "reason")
    assert 0 < present(reading.memory_available_bytes) <= present(reading.memory_size_bytes)
    assert reading.disks[0].mount_point == "/"
    assert 0 <= reading.disks[0].available_bytes <= reading.disks[0].size_bytes


def mount(device: str, point: str, kind: str = "ext4") -> str:
    return f"27 1 {device} / {point} rw - {kind} source rw\n"


def test_the_memory_of_other_processes_is_positive_and_lacks_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert present(memory_of_others()) > 0
    files = {
        "/proc/meminfo": b"AnonPages: 900 kB\nShmem: 100 kB\n",
        "/proc/self/statm": b"900 60 10 1 0 1 0\n",
    }
    monkeypatch.setattr(proc, "read_or_none", files.get)
    assert memory_of_others() == 1000 * 1024 - 50 * os.sysconf("SC_PAGE_SIZE")
    files["/proc/meminfo"] = b"AnonPages: 900 kB\n"
    assert memory_of_others() is None


def test_the_disks_are_the_root_and_each_volume_on_a_disk() -> None:
    shown = disk_mounts(MOUNTS, lambda path: path not in FILES)
    assert shown == ("/", "/data", "/data/sub", "/models", "/scratch/deep er")
    for kind in ("btrfs", "bcachefs", "zfs"):  # their disks have no device
        assert disk_mounts(mount("0:40", "/volume", kind), bool) == ("/", "/volume")
    table = "".join(mount("8:1", f"/a{number:02}") for number in range(40))
    assert disk_mounts(table, bool) == ("/", *(f"/a{number:02}" for number in range(MAX_DISKS - 1)))


@each_case("kind", ["nfs4", "nfs", "cifs", "fuse.mount-s3", "9p", "lustre", "ceph", ""])
def test_a_mount_that_can_hang_is_never_accessed(kind: str) -> None:
    asked: list[str] = []

    def is_folder(path: str) -> bool:
        asked.append(path)
        return True

    table = mount("0:99", "/far", kind) + mount("8:2", "/hidden") + mount("0:98", "/hidden", kind)
    assert disk_mounts(table + mount("8:3", "/farther"), is_folder) == ("/", "/farther")
    assert asked == ["/farther"]


X86_CPU = """processor	: {number}
model		: 85
model name	: Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz
"""
ARM_CPU = "processor	: 0\nCPU implementer	: 0x41\nCPU part	: {part}\n"


def test_the_model_of_a_processor_is_its_name_or_follows_from_its_part() -> None:
    first = X86_CPU.format(number=0)
    other = X86_CPU.format(number=1).replace("8259CL", "other")
    assert (
        parse_processor_model(f"{first}\n{other}")
        == "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz"
    )
    arm = {
        "0xd0c": "Neoverse-N1",
        "0xd40": "Neoverse-V1",
        "0xd4f": "Neoverse-V2",
        "0xfff": None,
        "": None,
    }
    assert {part: parse_processor_model(ARM_CPU.format(part=part)) for part in arm} == arm


NOTHING = KernelView(
    schedstat=False, system_calls=False, pressure=False, ptrace_scope=None, cgroup_version=None
)


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


def test_both_versions_at_once_count_as_version_1_and_this_process_can_be_read(
    tmp_path: Path,
) -> None:
    for cgroup in ("12:cpu,cpuacct:/a\n0::/a\n", "1:name=systemd:/\n"):
        write_files(tmp_path, {"self/cgroup": cgroup})
        assert read_kernel_view(proc_folder=str(tmp_path)).cgroup_version == 1
    assert read_kernel_view().system_calls


STAT = b"cpu  100 20 30 4000 500 6 7 8 90 0\ncpu0 1 2 3 4\n"


def test_the_busy_time_of_a_machine_has_no_idle_time_and_none_that_others_stole() -> None:
    assert parse_busy_ns(STAT, 10_000_000) == 163 * 10_000_000


@pytest.mark.parametrize("stat", [b"", b"cpu  1 2\n", b"intr 1 2 3 4 5 6 7 8\n"])
def test_a_damaged_stat_has_no_busy_time(stat: bytes) -> None:
    assert parse_busy_ns(stat, 10_000_000) is None


@pytest.mark.parametrize(
    ("before_ns", "after_ns", "own_ns", "length_ns", "expected"),
    [
        (0, 5 * 10**9, 2 * 10**9, 2 * 10**9, 1.5),
        (0, 10**9, 2 * 10**9, 2 * 10**9, 0),
        (None, 10**9, 0, 2 * 10**9, None),
        (0, None, 0, 2 * 10**9, None),
        (0, 10**9, 0, 10**9 - 1, None),
    ],
)
def test_what_other_programs_used_is_what_is_left_of_the_busy_time(
    before_ns: int | None, after_ns: int | None, own_ns: int, length_ns: int, expected: float | None
) -> None:
    assert others_vcpu_used(before_ns, lambda: after_ns, own_ns, length_ns) == expected


@each_case(
    ("vendor", "product", "instance_type"),
    [
        (b"Amazon EC2\n", b"m5.large\n", "m5.large"),
        (b"Amazon EC2\n", b"u-6tb1.112xlarge\n", "u-6tb1.112xlarge"),
        (b"Amazon EC2\n", b"c7gn.metal\n", "c7gn.metal"),
        # On Xen, of another vendor, and what is no name.
        (b"Xen\n", b"HVM domU\n", None),
        (b"QEMU\n", b"m5.large\n", None),
        (b"Amazon EC2\n", b"m5.large; rm\n", None),
        (b"Amazon EC2\n", b"\xff.\xff", None),
        (b"", b"", None),
    ],
)
def test_the_firmware_of_an_instance_names_its_type(
    vendor: bytes, product: bytes, instance_type: str | None
) -> None:
    assert parse_instance_type(vendor, product) == instance_type
