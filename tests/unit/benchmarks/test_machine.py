"""The description of the machine that runs a benchmark."""

import pytest

from benchmarks.machine import python_build


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("'--enable-shared' '--enable-optimizations' '--with-lto'", "3.13.5, built with a profile"),
        ("'--enable-shared'", "3.13.5"),
        (None, "3.13.5"),
    ],
)
def test_the_build_of_python_is_said_where_it_used_a_profile(
    options: str | None, said: str
) -> None:
    assert python_build("3.13.5", options) == said
