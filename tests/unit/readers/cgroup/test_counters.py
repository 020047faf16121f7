"""The counters of a control group in version 1 and 2."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.readers.cgroup.hierarchy import (
    V1_MEMORY,
    V2_MEMORY,
    MemoryFiles,
    MemoryReading,
    parse_cpu_stat_ns,
    parse_number,
    read_memory,
    read_oom_kills,
)
from tests.cgroup_files import CPU_STAT, V1_FILES, V2_MEMORY_FILES, write_files


def _group(folder: Path, files: dict[str, str]) -> str:
    return str(write_files(folder, files))


@pytest.mark.parametrize(("child", "files"), [(V1_FILES, V1_MEMORY), (V2_MEMORY_FILES, V2_MEMORY)], ids=["v1", "v2"])
def test_memory_is_without_unmapped_files_and_tmpfs_is_no_cache(
    tmp_path: Path, child: dict[str, str], files: MemoryFiles
) -> None:
    group = _group(tmp_path, child)
    expected = MemoryReading(
        used_bytes=860_000_000 - 10_485_760,
        cache_bytes=12_582_912 - 2_097_152,
        unmapped_bytes=10_485_760,
        mapped_bytes=0 if files is V1_MEMORY else None,
    )
    assert read_memory(group, files) == expected
    assert read_oom_kills(group, files) == 2


@pytest.mark.parametrize("files", [V1_MEMORY, V2_MEMORY])
def test_a_removed_group_has_no_readings(tmp_path: Path, files: MemoryFiles) -> None:
    assert read_memory(str(tmp_path), files) is None
    assert read_oom_kills(str(tmp_path), files) is None


def test_cpu_time() -> None:
    assert parse_number(b"1276795140123\n") == 1_276_795_140_123
    assert parse_cpu_stat_ns(CPU_STAT.encode()) == 1_276_795_000
    assert parse_cpu_stat_ns(b"user_usec 5\n") is None


@given(st.binary())
def test_parsers_survive_anything(text: bytes) -> None:
    for parsed in (parse_number(text), parse_cpu_stat_ns(text)):
        assert parsed is None or parsed >= 0


sizes = st.integers(0, 2**50)


@settings(deadline=None)  # it writes files
@given(sizes, sizes, sizes, sizes, sizes, sizes)
def test_memory_is_never_negative(usage: int, active: int, inactive: int, mapped: int, cache: int, shared: int) -> None:
    stat = f"active_file {active}\ninactive_file {inactive}\nfile_mapped {mapped}\nfile {cache}\nshmem {shared}\n"
    with tempfile.TemporaryDirectory() as folder:
        files = {"memory.current": f"{usage}\n", "memory.stat": stat}
        reading = read_memory(_group(Path(folder), files), V2_MEMORY)
    assert reading is not None
    assert 0 <= reading.used_bytes <= usage
    assert reading.unmapped_bytes == usage - reading.used_bytes
    assert reading.cache_bytes is not None
    assert 0 <= reading.cache_bytes <= cache
