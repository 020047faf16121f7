"""The search for failing examples, and that the tests do not roll dice."""

import pytest
from hypothesis import settings


def test_the_tests_try_the_same_examples_on_every_machine(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--hypothesis-profile"):
        pytest.skip("make fuzz has seeds of its own")
    assert settings.get_current_profile_name() == "same-examples"
    assert settings.default is not None
    assert settings.default.derandomize
