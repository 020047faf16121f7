"""Many cases in one test: each runs, and each that fails is named."""

import pytest

from tests.cases import each_case


def test_each_case_runs_and_each_failure_is_named() -> None:
    seen = []

    @each_case("number, text", [(1, "a"), (2, "b"), (3, "c")])
    def check(number: int, text: str, *, fixture: str) -> None:
        seen.append((number, text, fixture))
        assert number == 2

    with pytest.raises(ExceptionGroup, match="2 of 3 cases fail") as failed:
        check(fixture="shared")
    assert seen == [(1, "a", "shared"), (2, "b", "shared"), (3, "c", "shared")]
    assert [error.__notes__ for error in failed.value.exceptions] == [
        ["case: (1, 'a')"],
        ["case: (3, 'c')"],
    ]


def test_a_case_has_the_name_that_it_is_given() -> None:
    @each_case("number", [1, 2], ids=["one", "two"])
    def check(number: int) -> None:
        assert number == 1

    with pytest.raises(ExceptionGroup) as failed:
        check()
    assert [error.__notes__ for error in failed.value.exceptions] == [["case: two"]]


def test_no_case_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="cannot fail"):
        each_case("number", [])


@each_case("second", [1, 2])
@each_case("first", [1, 2])
def test_cases_of_cases_and_fixtures(
    first: int, second: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert first * second in (1, 2, 4)
    assert isinstance(monkeypatch, pytest.MonkeyPatch)
