"""The pages against all rules of axe-core: no violation, in both themes, on a desk and on a phone."""

from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests import shown_runs
from tests.browser.conftest import LOOKS, Opener
from tests.prerequisites import skip_or_fail

pytestmark = pytest.mark.browser
AXE = Path(__file__).resolve().parents[2] / "node_modules/axe-core/axe.min.js"


def violations(tab: Page) -> list[str]:
    """Each element that breaks a rule. What axe-core cannot judge is no violation."""
    if not AXE.exists():
        skip_or_fail(f"{AXE} is missing: run npm ci.")
    tab.evaluate(AXE.read_text("utf-8"))
    found = tab.evaluate("axe.run({ resultTypes: ['violations'] })")
    return [
        f"{rule['id']}: {rule['help']}: {node['html'][:200]}" for rule in found["violations"] for node in rule["nodes"]
    ]


@LOOKS
def test_the_overview_and_an_opened_run_have_no_violation(
    opened: Opener, ecs_dashboard: Path, theme: str, width: int
) -> None:
    tab = opened(ecs_dashboard, theme=theme, width=width)
    tab.locator("#sizing td.advice button").first.click()
    assert violations(tab) == []
    tab = opened(ecs_dashboard, f"#run={shown_runs.out_of_memory().record.task_id}", theme=theme, width=width)
    tab.wait_for_selector("#detail[open] .facts")
    assert violations(tab) == []
