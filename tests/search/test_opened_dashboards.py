"""Opens every dashboard in OpenSearch Dashboards: no error, no empty panel and no cut task id.

The server is not in a package registry, so the test takes the addresses of a running one and of its cluster, which must
be for tests: it imports the dashboards and adds made-up runs.
"""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from kibana.build import DASHBOARDS
from kibana.dashboard_model import Dashboard
from kibana.saved_objects import object_id
from tests.browser.conftest import browser  # noqa: F401  pytest finds the fixture by this name
from tests.values import present
from tools import example_documents, pictures

pytestmark = [pytest.mark.search, pytest.mark.timeout(600)]

DASHBOARDS_VARIABLE, CLUSTER_VARIABLE = "TEST_DASHBOARDS_URL", "TEST_CLUSTER_URL"
RUN = next(dashboard for dashboard in DASHBOARDS if dashboard.key == "task-run")
WIDTH, HEIGHT = 1600, 6200  # all panels are on the screen: those below are not drawn
_DRAWN = '[data-render-complete="true"]'
_EMPTY = "No results found"
# The task ids that end behind the end of their cell.
_CUT_TASK_IDS = """() => [...document.querySelectorAll('a[href*="task.id"]')].filter((link) => {
  const ends = [];
  for (let one = link.parentElement; one && !one.matches('[role="row"], tr'); one = one.parentElement) {
    if (getComputedStyle(one).overflowX !== 'visible') ends.push(one.getBoundingClientRect().right);
  }
  return [...link.getClientRects()].some((box) => ends.some((end) => box.right > end + 1));
}).map((link) => link.innerText)"""


@pytest.fixture(scope="module")
def server() -> str:
    url, cluster = os.environ.get(DASHBOARDS_VARIABLE, ""), os.environ.get(CLUSTER_VARIABLE, "")
    if not url or not cluster:
        pytest.skip(f"no OpenSearch Dashboards: set {DASHBOARDS_VARIABLE} and {CLUSTER_VARIABLE} to one for tests")
    command = (sys.executable, "-m", "profiler", "kibana", "import", "--url", url, "--elasticsearch", cluster)
    subprocess.run(command, check=True, timeout=120)
    example_documents.main([cluster, "--families", "17", "--dashboards", url])
    return url


@pytest.fixture
def tab(server: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    assert server
    chromium: Browser = request.getfixturevalue("browser")  # only where there is a server
    page = chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT}, timezone_id="UTC")
    yield page
    page.close()


def address_of(server: str, dashboard: Dashboard) -> str:
    return f"{server}/app/dashboards#/view/{object_id('dashboard', dashboard.key)}"


def opened(tab: Page, address: str, dashboard: Dashboard) -> list[str]:
    """Open a dashboard. Returns the errors of the page and of its requests."""
    panels = len(dashboard.panels) + 2  # the links and the filters
    trouble: list[str] = []
    tab.on("pageerror", lambda error: trouble.append(str(error)))
    tab.on("response", lambda answer: trouble.append(answer.url) if answer.status >= 400 else None)
    tab.goto(address, wait_until="domcontentloaded")
    tab.wait_for_selector(_DRAWN, timeout=120_000)
    count = "document.querySelectorAll('[data-test-subj=\"embeddablePanel\"]').length"
    tab.wait_for_function(f"{count} === {panels}", timeout=120_000)
    tab.wait_for_function("!document.querySelector('.euiLoadingChart')", timeout=120_000)
    tab.wait_for_selector('[data-test-subj="globalLoadingIndicator-hidden"]', state="attached", timeout=120_000)
    return trouble


def problems(tab: Page) -> dict[str, list[str]]:
    toasts = [toast.inner_text() for toast in tab.query_selector_all(".euiToast")]
    panels = tab.query_selector_all('[data-test-subj="embeddablePanel"]')
    empty = [panel.inner_text() for panel in panels if _EMPTY in panel.inner_text()]
    failed = [one.inner_text() for one in tab.query_selector_all(".visError, .embPanel__error")]
    return {"toasts": toasts, "empty": empty, "failed": failed, "cut": tab.evaluate(_CUT_TASK_IDS)}


NONE: dict[str, list[str]] = {"toasts": [], "empty": [], "failed": [], "cut": []}


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.key)
def test_every_panel_is_drawn(server: str, tab: Page, dashboard: Dashboard) -> None:
    assert opened(tab, address_of(server, dashboard), dashboard) == []
    assert problems(tab) == NONE
    assert tab.evaluate("document.querySelectorAll('a[href*=\"task.id\"]').length") > 0


def test_a_link_of_a_run_opens_its_dashboard_at_the_run_s_times(server: str, tab: Page) -> None:
    found = pictures.killed_run(os.environ[CLUSTER_VARIABLE])
    assert opened(tab, found["links"]["run"], RUN) == []
    assert problems(tab) == NONE
    links = {one.inner_text() for one in tab.query_selector_all('a[href*="task.id"]')}
    assert links == {found["task"]["id"], "Charts"}


def test_the_link_of_a_task_id_shows_the_course_of_a_run_that_is_shorter_than_a_time_bucket(
    server: str, tab: Page
) -> None:
    task = pictures.killed_run(os.environ[CLUSTER_VARIABLE])["task"]["id"]
    address = f"{address_of(server, RUN)}?_g=(time:(from:now-30d,to:now))"
    tab.set_viewport_size({"width": 1440, "height": HEIGHT})
    opened(tab, f"{address}&_a=(query:(language:kuery,query:'task.id:%22{task}%22'))", RUN)
    points = [len(chart.query_selector_all("circle")) for chart in tab.query_selector_all(".visChart")]
    assert len([number for number in points if number > 2]) == 2  # CPU and memory
    headings = [(one, present(one.bounding_box())) for one in tab.query_selector_all('[role="columnheader"]')]
    visible = {heading.inner_text().strip() for heading, box in headings if box["x"] + box["width"] < 1440}
    assert {"Outcome", "Duration", "USD", "Reason", "Peak %", "Recommended MB"} <= visible


def test_a_sum_of_money_without_a_run_is_not_zero(server: str, tab: Page) -> None:
    sizing = next(dashboard for dashboard in DASHBOARDS if dashboard.key == "right-sizing")
    period = "?_g=(time:(from:'2020-01-01T00:00:00Z',to:'2020-01-02T00:00:00Z'))"
    opened(tab, address_of(server, sizing) + period, sizing)
    shown = tab.inner_text("#dashboardViewport")
    assert "$" not in shown
    assert shown.count(_EMPTY) == len(sizing.panels) - 1  # all but the number of tasks that are too small


def test_a_link_to_another_dashboard_keeps_pinned_filters_and_the_time_range(server: str, tab: Page) -> None:
    """All dashboards begin with the same range."""
    overview = DASHBOARDS[0]
    pinned = (
        "('$state':(store:globalState),meta:(alias:!n,disabled:!f,key:task.family,negate:!f,"
        f"params:(query:nightly-etl),type:phrase,index:'{object_id('data-view', 'reports')}'),"
        "query:(match_phrase:(task.family:nightly-etl)))"
    )
    period = f"?_g=(time:(from:now-7d,to:now),filters:!({pinned}))"
    opened(tab, address_of(server, overview) + period, overview)
    tab.get_by_role("link", name=RUN.title, exact=True).click()
    tab.wait_for_url(f"**{object_id('dashboard', RUN.key)}**")
    tab.wait_for_selector('[data-test-subj~="filter"]')
    assert "nightly-etl" in tab.inner_text('[data-test-subj~="filter"]')
    assert tab.get_by_text("Last 7 days").count() > 0
