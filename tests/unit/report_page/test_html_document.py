"""The page as one HTML document."""

import hashlib
import re
from html.parser import HTMLParser

import pytest

from profiler.report_page.html_document import Assets, render_page
from profiler.report_page.page_data import PageData, build_page_data
from tests.report_page import report, run_of, unpacked
from tools.chart_library import BUNDLE, SHA256, VERSION

INJECTIONS = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]><img src=x onerror=alert(1)>",
    "&lt;b&gt;",
    "\u2028\u2029\u202e",
    "\"'`${alert(1)}",
    "\x00\x1b[31m",
    "%{x}<br><a href='javascript:alert(1)'>",
)
ASSETS = Assets(
    body="<main></main>",
    style="main {}",
    plotly="var a = '</script>';",
    browser_check="one();",
    modules={"main.js": "'</script>'"},
)


EMPTY = PageData(text="", series="", activity="", runs=0, without_details=0)


class _Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


PAGE = render_page(EMPTY, ASSETS, title="a")


def test_the_page_fetches_nothing_and_the_chart_library_is_text_until_a_chart_needs_it() -> None:
    tags = [attributes for _, attributes in _Tags(PAGE).found]
    assert {one[name] for one in tags for name in one.keys() & {"src", "href"}} == {"data:,"}
    (policy,) = [one["content"] or "" for one in tags if "http-equiv" in one]
    assert "default-src 'none'" in policy
    assert "http" not in policy
    assert [one["type"] for one in tags if one.get("id") == "plotly"] == ["text/plain"]


def test_a_script_with_an_end_tag_is_not_cut_short() -> None:
    assert PAGE.count("</script>") == 7
    assert r"var a = '<\/script>';" in PAGE


def test_the_chart_library_is_the_file_of_its_tool() -> None:
    assert hashlib.sha256(BUNDLE.read_bytes()).hexdigest() == SHA256
    assert f"v{VERSION}\n" in BUNDLE.read_text()[:200]


@pytest.mark.parametrize("text", INJECTIONS)
def test_no_text_ends_the_script_element_around_the_data(text: str) -> None:
    data = build_page_data([run_of(report(text, family=text))], generated_at=text, version=text).text
    assert re.fullmatch("[A-Za-z0-9+/=]+", data)
    assert unpacked(data)["runs"][0]["family"] == text
