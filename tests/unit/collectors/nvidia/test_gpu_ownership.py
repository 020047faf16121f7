"""The selectors by which GPUs are named."""

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.collectors.nvidia.gpu_ownership import match_uuids
from profiler.collectors.nvidia.gpu_reading_types import GpuFacts

A, B = "GPU-fef8089b-0000-1111-2222-333344445555", "GPU-fef80000-0000-1111-2222-333344445555"
VISIBLE = (GpuFacts(uuid=A, index=0), GpuFacts(uuid=B, index=1))


@pytest.mark.parametrize(
    ("spelling", "meant"),
    [
        (A, {A}),
        ("0", {A}),
        ("GPU-fef8089b", {A}),
        ("gpu-FEF8089B", {A}),
        ("1", {B}),
    ],
)
def test_a_spelling_means_what_nvidias_runtime_means_by_it(spelling: str, meant: Collection[str]) -> None:
    assert match_uuids([spelling], VISIBLE) == meant


@pytest.mark.parametrize("spelling", ["GPU-fef8", "GPU-", "G", "", "GPU-zz", "3", "0:0", "00"])
def test_what_is_ambiguous_or_names_nothing_means_nothing(spelling: str) -> None:
    assert match_uuids([spelling], VISIBLE) == frozenset()


def test_the_whole_name_of_one_may_be_the_beginning_of_another() -> None:
    assert match_uuids(["GPU-a"], [GpuFacts(uuid="GPU-a", index=0), GpuFacts(uuid="GPU-ab", index=1)]) == {"GPU-a"}


@given(st.lists(st.text("GPUgpu-:0123fe8", max_size=12), max_size=5))
def test_several_mean_what_each_means(selectors: list[str]) -> None:
    each = [match_uuids([spelling], VISIBLE) for spelling in selectors]
    assert match_uuids(selectors, VISIBLE) == frozenset[str]().union(*each)
