"""The disks that a container sees, by its table of mounts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.sources.mounts import MAX_DISKS, disk_mounts

# As in a container on an EC2 instance: overlay root, volumes of which two are on the instance's disk and two on one of
# their own, an EFS volume, files that Docker and the NVIDIA runtime bring along, folders of ECS's.
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


def everything_is_a_folder(_: str) -> bool:
    return True


def mount(device: str, point: str, kind: str = "ext4") -> str:
    return f"27 1 {device} / {point} rw - {kind} source rw\n"


def test_the_disks_are_the_root_and_each_volume_on_a_disk() -> None:
    shown = disk_mounts(MOUNTS, lambda path: path not in FILES)
    assert shown == ("/", "/data", "/data/sub", "/models", "/scratch/deep er")


def test_a_root_on_a_device_of_its_own_is_one_disk() -> None:
    assert disk_mounts(mount("254:0", "/"), everything_is_a_folder) == ("/",)


@pytest.mark.parametrize("kind", ["btrfs", "bcachefs", "zfs"])
def test_a_disk_whose_file_system_has_no_device_is_one(kind: str) -> None:
    assert disk_mounts(mount("0:40", "/volume", kind), everything_is_a_folder) == ("/", "/volume")


@pytest.mark.parametrize("kind", ["nfs4", "nfs", "cifs", "fuse.mount-s3", "9p", "lustre", "ceph", ""])
def test_what_can_hang_is_never_asked_nor_what_is_below_it_or_below_that_hides_a_disk(kind: str) -> None:
    asked: list[str] = []

    def is_folder(path: str) -> bool:
        asked.append(path)
        return True

    table = (
        mount("0:99", "/far", kind)
        + mount("8:1", "/far/near")
        + mount("8:2", "/hidden")
        + mount("0:98", "/hidden", kind)
        + mount("8:3", "/farther")
    )
    assert disk_mounts(table, is_folder) == ("/", "/farther")
    assert asked == ["/farther"]


def test_a_disk_below_a_file_system_in_memory_is_shown() -> None:
    table = mount("0:54", "/", "overlay") + mount("0:58", "/run", "tmpfs") + mount("8:1", "/run/data")
    assert disk_mounts(table, everything_is_a_folder) == ("/", "/run/data")


def test_of_many_mounts_sixteen_are_shown_and_each_disk_before_another_for_the_second_time() -> None:
    table = "".join(mount("8:1", f"/a{number:02}") for number in range(40))
    table += "".join(mount(f"8:{number}", f"/long/volume-{number:02}") for number in range(2, 12))
    shown = disk_mounts(table, everything_is_a_folder)
    assert len(shown) == MAX_DISKS == 16
    assert shown == ("/", *(f"/a{n:02}" for n in range(5)), *(f"/long/volume-{n:02}" for n in range(2, 12)))


@given(st.text(max_size=300))
def test_any_text_of_mounts_gives_the_root_first(text: str) -> None:
    assert disk_mounts(text, everything_is_a_folder)[0] == "/"
