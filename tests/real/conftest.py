"""The machine with AWS's own programs, for all modules of this folder."""

from collections.abc import Iterator

import pytest

from tests.real.lab import Lab, running_lab
from tests.real.programs import missing


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    if reason := missing():
        pytest.skip(f"it needs {reason}")
    with running_lab() as lab:
        yield lab
