"""Tests of what the memory used of a record counts."""

import pytest
from msgspec.structs import replace

from profiler.record.memory_meaning import may_count_mapped_files
from profiler.record.record_model import CONTAINER_INSIGHTS, SCHEMA_VERSION, Sampling
from tests.runs import report


@pytest.mark.parametrize(
    ("version", "may_count"),
    [
        ("1.0", True),
        ("1.3", True),
        ("0.9", True),
        ("", True),
        ("newest", True),
        ("1.4", False),
        ("1.10", False),
        ("2.0", False),
        (SCHEMA_VERSION, False),
    ],
)
def test_memory_is_what_cannot_be_dropped_from_version_1_4_on(
    version: str, *, may_count: bool
) -> None:
    assert may_count_mapped_files(replace(report(), schema_version=version)) is may_count


def test_container_insights_does_not_tell_mapped_files_apart() -> None:
    sampled = report()
    sampling = Sampling(interval_ms=60_000, sources=(CONTAINER_INSIGHTS,))
    sampled = replace(sampled, record=replace(sampled.record, sampling=sampling))
    assert may_count_mapped_files(sampled)
