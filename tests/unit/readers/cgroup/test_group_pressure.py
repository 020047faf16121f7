import os
from pathlib import Path

import pytest

from profiler.readers.cgroup.group_pressure import open_group_pressure
from profiler.readers.linux.cpu_pressure import CpuPressure

PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=700\nfull avg10=0.00 total=5\n"
V1_STAT = "nr_periods 9\nnr_throttled 4\nthrottled_time 3000000\nnr_bursts 0\nburst_time 0\n"
V2_STAT = (
    "usage_usec 5\nuser_usec 4\nsystem_usec 1\nnr_periods 9\nnr_throttled 4\nthrottled_usec 3000\n"
)


class Groups:
    """The files that a monitor sees of process 7."""

    def __init__(self, folder: Path, membership: str, mountinfo: str) -> None:
        self.proc = folder / "proc"
        self.root = self.proc / "7" / "root"
        self.root.mkdir(parents=True)
        (self.proc / "7" / "cgroup").write_text(membership)
        (self.proc / "7" / "mountinfo").write_text(mountinfo)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def read(self) -> CpuPressure:
        pressure = open_group_pressure(7, str(self.proc))
        try:
            return pressure.read_pressure()
        finally:
            pressure.close()


@pytest.fixture
def version_2(tmp_path: Path) -> Groups:
    mountinfo = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
    groups = Groups(tmp_path, "0::/\n", mountinfo)
    groups.write("sys/fs/cgroup/cpu.stat", V2_STAT)
    groups.write("sys/fs/cgroup/cpu.pressure", PRESSURE)
    return groups


def test_a_container_of_version_2_has_its_own_pressure(version_2: Groups) -> None:
    version_2.write("sys/fs/cgroup/cgroup.events", "populated 1\n")
    pressure = version_2.read()
    assert pressure.waited_ns == 700_000
    assert pressure.is_of_group
    assert pressure.throttled_ns == 3_000_000


@pytest.mark.parametrize(("own", "is_of_group"), [("/", False), ("/../monitor", True)])
def test_the_pressure_of_a_group_that_the_profiler_shares_may_be_that_of_others(
    own: str,
    is_of_group: bool,  # noqa: FBT001
    version_2: Groups,
) -> None:
    """Such as the session of a terminal, in which other programs run."""
    version_2.write("sys/fs/cgroup/cgroup.events", "populated 1\n")
    (version_2.proc / "self").mkdir()
    (version_2.proc / "self" / "cgroup").write_text(f"0::{own}\n")
    pressure = version_2.read()
    assert pressure.waited_ns == 700_000
    assert pressure.is_of_group == is_of_group


def test_a_container_of_version_2_shows_whether_it_waits_for_memory(version_2: Groups) -> None:
    version_2.write("sys/fs/cgroup/cgroup.events", "populated 1\n")
    version_2.write("sys/fs/cgroup/memory.pressure", PRESSURE)
    files = open_group_pressure(7, str(version_2.proc))
    answers = []
    for at_us, full_us in ((0, 5), (2000, 905), (3000, 1405), (3000, 9999)):
        version_2.write("sys/fs/cgroup/memory.pressure", f"full avg10=0.00 total={full_us}\n")
        answers.append(files.waits_for_memory(at_us * 1000))
    assert answers == [False, False, True, False]
    files.close()
    assert not files.waits_for_memory(5_000_000)


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_paused_container_of_version_2_is_frozen(version_2: Groups, *, is_frozen: bool) -> None:
    version_2.write("sys/fs/cgroup/cgroup.events", f"populated 1\nfrozen {is_frozen:d}\n")
    files = open_group_pressure(7, str(version_2.proc))
    assert files.is_frozen() is is_frozen
    files.close()
    assert not files.is_frozen()


@pytest.mark.parametrize("state", ["THAWED", "FREEZING", "FROZEN"])
def test_a_paused_container_of_version_1_is_frozen(tmp_path: Path, state: str) -> None:
    mountinfo = "31 24 0:27 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n"
    groups = Groups(tmp_path, "1:freezer:/job\n", mountinfo)
    groups.write("sys/fs/cgroup/freezer/job/freezer.state", f"{state}\n")
    files = open_group_pressure(7, str(groups.proc))
    assert files.is_frozen() is (state != "THAWED")
    files.close()
    assert not files.is_frozen()


@pytest.mark.parametrize("is_under_oom", [False, True])
def test_a_container_of_version_1_at_its_limit_without_kills_waits_for_memory(
    tmp_path: Path, *, is_under_oom: bool
) -> None:
    mountinfo = (
        "31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "30 24 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw\n"
    )
    groups = Groups(tmp_path, "1:memory:/job\n0::/job\n", mountinfo)
    # Version 2 counts another time, where both are mounted.
    groups.write("sys/fs/cgroup/unified/job/cgroup.events", "populated 1\n")
    groups.write("sys/fs/cgroup/unified/job/memory.pressure", PRESSURE)
    control = f"oom_kill_disable 1\nunder_oom {is_under_oom:d}\noom_kill 0\n"
    groups.write("sys/fs/cgroup/memory/job/memory.oom_control", control)
    files = open_group_pressure(7, str(groups.proc))
    assert [files.waits_for_memory(at_ns) for at_ns in (0, 1)] == [is_under_oom] * 2
    files.close()
    assert not files.waits_for_memory(2)


def test_the_pressure_of_the_root_group_is_the_machines(version_2: Groups) -> None:
    (version_2.proc / "pressure").mkdir()
    (version_2.proc / "pressure" / "cpu").write_text(PRESSURE.replace("700", "900"))
    pressure = version_2.read()
    assert pressure.waited_ns == 900_000
    assert not pressure.is_of_group


@pytest.fixture
def version_1(tmp_path: Path) -> Groups:
    mountinfo = "31 24 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    groups = Groups(tmp_path, "1:cpu:/job\n", mountinfo)
    groups.write("sys/fs/cgroup/cpu/cpu.stat", V1_STAT.replace("3000000", "9"))
    groups.write("sys/fs/cgroup/cpu/job/cpu.stat", V1_STAT)
    return groups


def test_version_1_counts_throttled_time_in_the_group_of_the_cpu_controller(
    version_1: Groups,
) -> None:
    assert version_1.read().throttled_ns == 3_000_000


def test_a_process_that_has_ended_has_no_group(tmp_path: Path) -> None:
    pressure = open_group_pressure(7, str(tmp_path))
    assert pressure.read_pressure().throttled_ns is None
    assert pressure.read_pressure().waited_ns is None


def test_a_group_without_a_quota_is_never_throttled(version_2: Groups) -> None:
    version_2.write("sys/fs/cgroup/cpu.max", "max 100000\n")
    assert version_2.read().throttled_ns is None
    version_2.write("sys/fs/cgroup/cpu.max", "50000 100000\n")
    assert version_2.read().throttled_ns == 3_000_000


def test_a_group_of_version_1_without_a_quota_is_never_throttled(version_1: Groups) -> None:
    version_1.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n")
    assert version_1.read().throttled_ns is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_process_whose_root_is_hidden_fails_nothing() -> None:
    """A monitor without privileges reads the counters of its own mounts, if there are any."""
    os.seteuid(65534)
    try:
        open_group_pressure(1).close()
    finally:
        os.seteuid(0)
