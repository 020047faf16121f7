"""The selectors by which GPUs are named."""

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.collectors.nvidia.gpu_ownership import match_uuids
from profiler.collectors.nvidia.gpu_reading_types import GpuFacts

A, B = "GPU-fef8089b-0000-1111-2222-333344445555", "GPU-fef80000-0000-1111-2222-333344445555"
CUT = "GPU-cccc0000-0000-1111-2222-333344445555"
FIRST, SECOND = (f"MIG-{letter * 8}-0000-1111-2222-333344445555" for letter in "de")
VISIBLE = (
    GpuFacts(uuid=A, index=0),
    GpuFacts(uuid=B, index=1),
    GpuFacts(uuid=FIRST, index=2, parent_uuid=CUT, mig_index=0),
    GpuFacts(uuid=SECOND, index=2, parent_uuid=CUT, mig_index=3),
)


@pytest.mark.parametrize(
    ("spelling", "meant"),
    [
        (A, {A}),
        ("0", {A}),
        ("GPU-fef8089b", {A}),
        ("gpu-FEF8089B", {A}),
        (CUT, {FIRST, SECOND}),
        ("GPU-cccc", {FIRST, SECOND}),
        ("2", {FIRST, SECOND}),
        ("2:0", {FIRST}),
        ("2:3", {SECOND}),
        (SECOND, {SECOND}),
        ("MIG-dddd", {FIRST}),
    ],
)
def test_a_spelling_means_what_nvidias_runtime_means_by_it(spelling: str, meant: Collection[str]) -> None:
    assert match_uuids([spelling], VISIBLE) == meant


@pytest.mark.parametrize("spelling", ["GPU-fef8", "GPU-", "MIG-", "G", "", "GPU-zz", "3", "2:1", "0:0", "0:None", "00"])
def test_what_is_ambiguous_or_names_nothing_means_nothing(spelling: str) -> None:
    assert match_uuids([spelling], VISIBLE) == frozenset()


def test_the_whole_name_of_one_may_be_the_beginning_of_another() -> None:
    assert match_uuids(["GPU-a"], [GpuFacts(uuid="GPU-a", index=0), GpuFacts(uuid="GPU-ab", index=1)]) == {"GPU-a"}


@given(st.lists(st.text("GPUMIGgpu-:0123fe8", max_size=12), max_size=5))
def test_several_mean_what_each_means(selectors: list[str]) -> None:
    each = [match_uuids([spelling], VISIBLE) for spelling in selectors]
    assert match_uuids(selectors, VISIBLE) == frozenset[str]().union(*each)
