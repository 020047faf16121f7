"""What is said of the errors of a GPU's driver: whose fault they are, by NVIDIA's catalogue."""

import pytest

from profiler.record.hardware import most_telling_gpu_error
from profiler.record.record_model import Container, Gpu, Record
from profiler.record.stop_causes import outcome_of
from profiler.record.xids import is_xid_error, xid_sentence
from tests.cases import each_case
from tests.values import present


def said(*numbers: int, is_shared: bool = False, is_local: bool = False) -> str:
    return present(xid_sentence(numbers, is_shared=is_shared, is_local=is_local))


@each_case("number", range(1, 175))
def test_an_error_is_never_silent_and_never_a_guess(number: int) -> None:
    text = said(number)
    assert text.startswith("The GPU's driver reported")
    assert f"Xid {number} " in text


@pytest.mark.parametrize("number", [11, 13, 25, 31, 43, 69, 80])
def test_an_error_of_the_program_is_found_with_compute_sanitizer(number: int) -> None:
    assert "usually an error of the program itself: compute-sanitizer finds the place." in said(
        number
    )
    assert "Another program used this GPU, too" in said(number, is_shared=True)


@each_case(
    "number",
    [8, 32, 46, 48, 62, 64, 74, 79, 94, 95, 109, 110, 119, 120, 136, 140, *range(143, 151)],
)
def test_the_machines_fault_needs_another_machine(number: int) -> None:
    text = said(number)
    assert "That is the machine's fault, not the program's: run it on another instance" in text
    assert "reset the GPU" in said(number, is_local=True)
    assert "Another program" not in said(number, is_shared=True)


@pytest.mark.parametrize("number", [45, 63, 92, 154])
def test_a_note_is_no_cause_of_a_failure(number: int) -> None:
    assert not is_xid_error(number)
    assert "fault" not in said(number)


def test_a_number_that_is_not_listed_is_named_without_words() -> None:
    assert said(171) == "The GPU's driver reported the error Xid 171 during the run."
    assert is_xid_error(171)


def test_the_worst_of_several_errors_counts() -> None:
    """What follows from an error comes after it: a program's error, the clean-up."""
    assert "Xid 94 " in said(45, 31, 94)
    assert "Xid 119 " in said(31, 119)
    assert "Xid 79 " in said(119, 79)
    assert "Xid 31 " in said(45, 31)
    assert xid_sentence((), is_shared=False, is_local=False) == ""


@pytest.mark.parametrize("number", [31, 79])
def test_an_error_of_a_gpu_that_may_be_anothers_is_not_said_to_be_the_runs(number: int) -> None:
    text = xid_sentence((number,), is_shared=False, is_local=False, is_own=False)
    assert text.endswith("It is not known which programs used this GPU.")
    assert "program itself" not in text


@pytest.mark.parametrize("numbers", [(63, 171), (171, 63)])
def test_an_unknown_error_says_more_than_a_note(numbers: tuple[int, int]) -> None:
    assert "Xid 171 " in said(*numbers)
    gpu = Gpu(uuid="GPU-a", xids=numbers)
    record = Record(
        task_id="t", container=Container(name="c"), status="failure", exit_code=1, gpus=(gpu,)
    )
    assert most_telling_gpu_error(record) == 171
    assert outcome_of(record).cause == "gpu-error"


def test_a_known_error_says_more_than_an_unknown_one() -> None:
    assert "Xid 31 " in said(171, 31)
