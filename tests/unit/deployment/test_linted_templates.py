"""The linter of CloudFormation finds nothing in any template. A process imports it, and reads what it
knows, for five seconds of a processor: one file has all of these tests, and `make slow` runs them.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from profiler.aws_account.setup.template_parameters import without_subscription
from tests.cloudformation import CLUSTERS, TEMPLATE, lint_template
from tests.documentation import ROOT

EXAMPLES = tuple(ROOT / "examples" / f"{name}.yaml" for name in ("batch_queue", "stop_stuck_tasks"))


pytestmark = [pytest.mark.no_cover, pytest.mark.slow]


@pytest.mark.parametrize("change", [str, without_subscription], ids=["alone", "by the command"])
def test_the_linter_finds_nothing_in_the_forwarders_template(change: Callable[[str], str]) -> None:
    assert lint_template(change(TEMPLATE.read_text())) == []


@pytest.mark.parametrize("path", [*CLUSTERS, *EXAMPLES], ids=lambda path: path.stem)
def test_the_linter_finds_nothing(path: Path) -> None:
    assert lint_template(path.read_text()) == []
