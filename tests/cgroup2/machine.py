"""A virtual machine whose kernel has only cgroup v2, for hosts that have version 1.

QEMU uses KVM where the host's processor helps, and else emulates the processor. On an emulated processor
Python is about ten times slower than on the host, so tests must not assert times. The host must be
x86_64 and have these Debian packages:

    apt-get install --no-install-recommends qemu-system-x86 debootstrap e2fsprogs

`debootstrap` makes the root tree of the machine and needs root. The tree is written to a disk image
in the user's cache folder. The cache key is a hash of the image's content: Debian packages, the
project's dependencies, and configuration. QEMU discards changes to this disk. Each run reads its
files, among them the code under test, from a second disk, which is a tar archive. It writes its
results to the second serial port, one JSON document per line. The first serial port is the console.
"""

import contextlib
import fcntl
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.e2e import images
from tests.e2e.engine import run_command

HOST_PACKAGES = ("qemu-system-x86", "debootstrap", "e2fsprogs")
CHECKOUT = "/srv/checkout"  # where the archive is unpacked in the machine
JOB = "job.sh"  # the script in the archive that the machine executes

_QEMU = "qemu-system-x86_64"
_PROGRAMS = (_QEMU, "debootstrap", "mkfs.ext4", "setpriv")
_RELEASE = "bookworm"
_PYTHON_VERSION = "3.11"  # that of the release
_MACHINE_PACKAGES = (
    *(
        "linux-image-cloud-amd64",
        "initramfs-tools",
        "systemd-sysv",
        "udev",
        "kmod",
        "dbus",
        "libpam-systemd",
    ),
    *("python3", "docker.io"),
)
_SITE_PACKAGES = f"usr/local/lib/python{_PYTHON_VERSION}/dist-packages"
_SERVICE = f"""\
[Unit]
Description=Job of the test bench
After=dbus.service

[Service]
Type=oneshot
ExecStart=/bin/sh -c 'mkdir -p {CHECKOUT} && tar -xf /dev/vdb -C {CHECKOUT} && cd {CHECKOUT} && exec sh {JOB}'
StandardOutput=file:/dev/ttyS1
StandardError=file:/dev/ttyS0
ExecStopPost=/usr/bin/systemctl poweroff --force --force
TimeoutStartSec=infinity
"""
_FILES = {
    "etc/systemd/system/job.service": _SERVICE,
    "etc/hostname": "cgroup2\n",
    "etc/docker/daemon.json": '{"bridge": "none", "iptables": false, "ip6tables": false, "live-restore": true}\n',
    # Every Python process in the machine can import the checkout, regardless of user, folder and
    # environment.
    f"{_SITE_PACKAGES}/checkout.pth": f"{CHECKOUT}\n",
}
_LINKS = {
    "etc/systemd/system/default.target": "/lib/systemd/system/multi-user.target",
    "etc/systemd/system/multi-user.target.wants/job.service": "/etc/systemd/system/job.service",
    # The machine has no network and no logins.
    **{
        f"etc/systemd/system/{unit}": "/dev/null"
        for unit in (
            "serial-getty@ttyS0.service",
            "getty@tty1.service",
            "apt-daily.timer",
            "apt-daily-upgrade.timer",
        )
    },
}
_NOT_NEEDED = (
    # Docker does not start at boot: the scenarios that need it start it.
    *(
        f"etc/systemd/system/multi-user.target.wants/{unit}.service"
        for unit in ("docker", "containerd")
    ),
    *("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"),
)
_DISK_SIZE = "6G"  # sparse
_MEMORY_MIB = 3072
_BUILD_SECONDS = 1800.0
_KEPT_SECONDS = 14 * 86400.0
_PARTIAL = ".partial"
_EMULATION = ("-accel", "tcg,thread=multi,tb-size=512")
_VIRTUALIZATION = ("-accel", "kvm", *_EMULATION)  # QEMU takes the second where the first fails
_CPUINFO = Path("/proc/cpuinfo")
# apparmor=0: containers do not start without apparmor_parser. panic=-1 with -no-reboot: a panic
# ends QEMU. no_timer_check: on a busy host the emulated timer is late, and the kernel panics.
_KERNEL_ARGUMENTS = (
    "root=/dev/vda rw console=ttyS0 panic=-1 systemd.show_status=0 loglevel=3 apparmor=0"
    " no_timer_check"
)
_CONSOLE_TAIL_LINES = 40


class MachineMissingError(Exception):
    """The machine cannot be made on this host; the message names what is missing."""


class Finished(Struct, frozen=True, kw_only=True):
    """The results of one run of the machine, and the end of its console."""

    results: tuple[Mapping[str, Any], ...]
    console: str
    timed_out: bool


class Machine(Struct, frozen=True, kw_only=True):
    disk: Path
    kernel: Path
    initrd: Path

    def run(self, archive: Path, folder: Path, timeout_seconds: float) -> Finished:
        """Boot with the archive as second disk, wait until the machine powers off, and return
        its results.

        QEMU is killed after the timeout; the results written before are returned. Temporary files
        go to the folder.
        """
        results, console = folder / "results", folder / "console"
        command = (
            # The kernel kills QEMU when this process ends, even if this process is killed.
            *("setpriv", "--pdeathsig", "KILL", _QEMU),
            *accelerators(_CPUINFO.read_text()),
            *("-cpu", "max", "-smp", "2", "-m", str(_MEMORY_MIB)),
            *("-display", "none", "-monitor", "none", "-nic", "none", "-no-reboot"),
            *("-serial", f"file:{console}", "-serial", f"file:{results}"),
            *(
                "-kernel",
                str(self.kernel),
                "-initrd",
                str(self.initrd),
                "-append",
                _KERNEL_ARGUMENTS,
            ),
            *("-drive", f"file={self.disk},if=virtio,format=raw,cache=unsafe,snapshot=on"),
            *("-drive", f"file={archive},if=virtio,format=raw,readonly=on"),
        )
        environment = {**os.environ, "TMPDIR": str(folder)}  # for the changes to the disk
        timed_out = False
        try:
            run_command(*command, environment=environment, seconds=timeout_seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
        return Finished(results=_documents(results), console=_tail(console), timed_out=timed_out)


def accelerators(cpuinfo: str) -> tuple[str, ...]:
    """QEMU's options: KVM where the processor can virtualize, else emulation.

    A KVM without the processor's help (PVM) exists, too: with it, a kernel that was not made for it
    does not get as far as its first line.
    """
    flags = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "").split()
    return _VIRTUALIZATION if {"vmx", "svm"} & set(flags) else _EMULATION


def default_cache() -> Path:
    return images.default_cache().with_name("cgroup2")


def prepare(repository: Path, cache: Path) -> Machine:
    """Return the machine for this checkout's dependencies; build it if it is not in the cache."""
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        install = f"apt-get install --no-install-recommends {' '.join(HOST_PACKAGES)}"
        raise MachineMissingError(f"{', '.join(missing)} not found: on Debian, {install}")
    if platform.machine() != "x86_64":
        raise MachineMissingError(
            f"the machine can be made on x86_64 only, and this is {platform.machine()}"
        )
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    dependencies: list[str] = project["dependencies"]
    content = json.dumps(
        [_RELEASE, _MACHINE_PACKAGES, sorted(dependencies), _FILES, _LINKS, _NOT_NEEDED, _DISK_SIZE]
    )
    folder = cache / hashlib.sha256(content.encode()).hexdigest()[:16]
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:  # two test sessions must not build it at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            if os.geteuid() != 0:
                raise MachineMissingError(
                    "making the disk needs root: run make e2e-cgroup2 as root"
                )
            _remove_old(cache)
            _build(folder, dependencies)
        os.utime(folder)
    return Machine(
        disk=folder / "disk.img", kernel=folder / "vmlinuz", initrd=folder / "initrd.img"
    )


def write_archive(archive: Path, repository: Path, paths: Sequence[str], job: str) -> None:
    """Write the second disk: ``paths`` of the working tree, and the script ``job``."""
    with tarfile.open(archive, "w") as tar:
        for path in paths:
            tar.add(repository / path, path, filter=_readable_source)
        script = tarfile.TarInfo(JOB)
        script.size = len(job.encode())
        script.mode = 0o755
        tar.addfile(script, io.BytesIO(job.encode()))


def _readable_source(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out compiled files, and make the others readable for every user of the machine."""
    if "__pycache__" in member.name:
        return None
    member.mode |= 0o555 if member.isdir() else 0o444
    member.uid = member.gid = 0
    return member


def _remove_old(cache: Path) -> None:
    """Remove the remains of interrupted builds, and disks that were not used for two weeks."""
    oldest = time.time() - _KEPT_SECONDS
    for entry in cache.iterdir():
        if entry.is_dir() and (entry.suffix == _PARTIAL or entry.stat().st_mtime < oldest):
            _delete_tree(entry)


def _build(folder: Path, dependencies: Sequence[str]) -> None:
    partial = folder.with_suffix(_PARTIAL)
    root = partial / "root"
    root.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        stack.callback(_delete_tree, partial)
        packages = ",".join(_MACHINE_PACKAGES)
        run_command(
            "debootstrap",
            "--variant=minbase",
            f"--include={packages}",
            _RELEASE,
            str(root),
            seconds=_BUILD_SECONDS,
        )
        _install_python_packages(root, dependencies)
        for path, text in _FILES.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        for path, target in _LINKS.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).unlink(missing_ok=True)
            (root / path).symlink_to(target)
        for path in _NOT_NEEDED:
            _delete_tree(root / path)
        for name in ("vmlinuz", "initrd.img"):
            shutil.copyfile(next((root / "boot").glob(f"{name}-*")), partial / name)
        disk = partial / "disk.img"
        run_command("truncate", "--size", _DISK_SIZE, str(disk))
        run_command("mkfs.ext4", "-q", "-F", "-d", str(root), str(disk))
        _delete_tree(root)
        partial.rename(folder)


def _install_python_packages(root: Path, dependencies: Sequence[str]) -> None:
    """Install wheels for the Python of the machine with the pip of the host, and compile them."""
    site_packages = root / _SITE_PACKAGES
    run_command(
        *(
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-compile",
        ),
        *("--target", str(site_packages), "--only-binary=:all:", "--implementation=cp"),
        *("--platform=manylinux2014_x86_64", f"--python-version={_PYTHON_VERSION}", *dependencies),
    )
    run_command("chroot", str(root), "python3", "-m", "compileall", "-q", f"/{_SITE_PACKAGES}")


def _delete_tree(folder: Path) -> None:
    """Delete a folder, but nothing on other file systems: debootstrap may leave /proc mounted
    when it is killed.
    """
    run_command("rm", "-rf", "--one-file-system", str(folder))


def _documents(results: Path) -> tuple[Mapping[str, Any], ...]:
    """Read the JSON lines; the last one is left out if QEMU was killed while it was written."""
    documents = []
    for line in results.read_text(errors="replace").splitlines() if results.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            documents.append(json.loads(line))
    return tuple(document for document in documents if isinstance(document, dict))


def _tail(console: Path) -> str:
    lines = console.read_text(errors="replace").splitlines() if console.exists() else []
    return "\n".join(lines[-_CONSOLE_TAIL_LINES:])
