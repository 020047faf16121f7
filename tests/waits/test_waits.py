"""What runs of real frameworks, languages and servers waited for (`make waits`)."""

import pytest

from tests.prerequisites import skip_or_fail
from tests.timed_programs import of_lane
from tests.timed_runs import check

# Too large to install for a few programs; a machine that has it runs them.
_OPTIONAL = frozenset({"the program go", "Java 21 or newer"})


@pytest.mark.waits
def test_each_part_is_what_the_program_itself_says() -> None:
    wrong, missing = check(of_lane("waits"), at_once=6)
    assert wrong == {}
    lacking = sorted(set(missing.values()) - _OPTIONAL)
    if lacking:
        skip_or_fail(f"{len(missing)} programs did not run: they need {', '.join(lacking)}")
