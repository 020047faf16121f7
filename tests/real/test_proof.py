"""``task-profiler setup proof`` under AWS's own agent: every row is ok, and each fault is a row."""

import pytest

from tests.real.lab import Lab
from tests.real.proof import prepare, proving

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def account(lab: Lab) -> Lab:
    prepare(lab)
    return lab


def test_every_row_is_ok(account: Lab) -> None:
    with proving(account) as proof:
        code, result, errors = proof.run(120, "--from", account.search.url)
    assert [row for row in result["rows"] if row["state"] == "differs"] == [], errors
    assert code == 0
