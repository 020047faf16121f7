"""The names of processors, and the difference of two runs' processors."""

import pytest

from profiler.record.hardware import processor_difference, short_processor_name
from profiler.record.record_model import Container, Processor, Record


def run_on(model: str | None) -> Record:
    return Record(
        task_id="a",
        container=Container(name="app"),
        processor=None if model is None else Processor(model=model, count=4),
    )


@pytest.mark.parametrize(
    ("model", "short"),
    [
        ("Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz", "Xeon 8259CL"),
        ("Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz", "Xeon E5-2686 v4"),
        ("Intel(R) Xeon(R) Processor @ 2.90GHz", "Xeon @ 2.90GHz"),
        ("Intel(R) Xeon(R) Processor", "Xeon"),
        ("13th Gen Intel(R) Core(TM) i7-1360P", "13th Gen Core i7-1360P"),
        ("AMD EPYC 7R13 Processor", "EPYC 7R13"),
        ("AMD EPYC 7763 64-Core Processor", "EPYC 7763"),
        ("Neoverse-N1", "Neoverse-N1"),
        ("Processor", "Processor"),
    ],
)
def test_the_short_name_has_only_what_tells_models_apart(model: str, short: str) -> None:
    assert short_processor_name(model) == short


def test_a_difference_names_a_common_brand_once() -> None:
    one, two = "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz", "Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz"
    assert processor_difference(run_on(one), run_on(two), "the last success") == (
        "ran on Xeon 8259CL, the last success on 8375C"
    )
    assert processor_difference(run_on(one), run_on("AMD EPYC 7R13 Processor")) == (
        "ran on Xeon 8259CL, the other run on EPYC 7R13"
    )
    assert processor_difference(run_on("Neoverse-N1"), run_on("Neoverse-V1")) == (
        "ran on Neoverse-N1, the other run on Neoverse-V1"
    )


@pytest.mark.parametrize(("one", "two"), [(None, None), ("Neoverse-N1", None), (None, "Neoverse-N1"), ("EPYC", "EPYC")])
def test_there_is_no_difference_between_equal_or_unknown_processors(one: str | None, two: str | None) -> None:
    assert processor_difference(run_on(one), run_on(two)) is None
