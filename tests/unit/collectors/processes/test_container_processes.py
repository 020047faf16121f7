from pathlib import Path

from profiler.collectors.processes.discovery import pids_of, visible_devices

BATCH = "c0ffee" * 10


def process(folder: Path, pid: int, docker_id: str, *environment: str) -> None:
    (folder / str(pid)).mkdir()
    (folder / str(pid) / "cgroup").write_text(f"0::/../{docker_id}\n")
    (folder / str(pid) / "environ").write_bytes(b"".join(entry.encode() + b"\0" for entry in environment))


def test_the_first_process_with_the_variable_determines_the_gpus(tmp_path: Path) -> None:
    process(tmp_path, 7, "another", "NVIDIA_VISIBLE_DEVICES=GPU-wrong")
    process(tmp_path, 100, BATCH, "HOME=/", "NVIDIA_VISIBLE_DEVICES=GPU-late")
    process(tmp_path, 20, BATCH, "HOME=/", "NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b", "X_NVIDIA_VISIBLE_DEVICES=no")
    process(tmp_path, 8, BATCH, "HOME=/")
    (tmp_path / "self").mkdir()
    assert visible_devices(BATCH, str(tmp_path)) == "GPU-a,GPU-b"
    assert list(pids_of(BATCH, str(tmp_path))) == [8, 20, 100]


def test_unreadable_stats_are_not_compared(tmp_path: Path) -> None:
    process(tmp_path, 7, BATCH)
    (tmp_path / "7" / "environ").unlink()
    (tmp_path / "8").mkdir()
    assert visible_devices(BATCH, str(tmp_path)) is None
    assert visible_devices(BATCH, str(tmp_path / "nowhere")) is None
