"""The pages against the rules of axe-core: no serious finding, in both themes."""

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests import shown_runs
from tests.browser.conftest import Opener

pytestmark = pytest.mark.browser
SERIOUS = frozenset({"serious", "critical"})


def serious_findings(tab: Page) -> list[str]:
    results = Axe().run(tab).response
    return [
        f"{found['id']}: {found['help']}: {node['html'][:200]}"
        for found in results["violations"]
        if found["impact"] in SERIOUS
        for node in found["nodes"]
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_overview_has_no_serious_finding(opened: Opener, ecs_dashboard: Path, theme: str) -> None:
    tab = opened(ecs_dashboard, theme=theme)
    tab.locator("#sizing td.advice button").first.click()
    assert serious_findings(tab) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_an_opened_run_has_no_serious_finding(opened: Opener, ecs_dashboard: Path, theme: str) -> None:
    tab = opened(ecs_dashboard, f"#run={shown_runs.out_of_memory().record.task_id}", theme=theme)
    assert serious_findings(tab) == []


def test_every_chart_has_a_name(opened: Opener, ecs_dashboard: Path) -> None:
    tab = opened(ecs_dashboard)
    names = tab.evaluate(
        "[...document.querySelectorAll('.chart:not([data-empty])')].map((one) => one.getAttribute('aria-label'))"
    )
    assert len(names) >= 4
    assert all(name and len(name) > 20 for name in names)
