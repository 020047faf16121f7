"""The page as one HTML document."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from profiler.report_page.html_document import Assets, import_map, read_assets, render_page
from profiler.report_page.page_data import PageData, build_page_data
from tests.report_page import report, run_of, unpacked
from tools.chart_library import BUNDLE, SHA256, VERSION

MAX_LINE_LENGTH = 120
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


def test_the_page_fetches_nothing() -> None:
    tags = _Tags(render_page(EMPTY, ASSETS, title="a")).found
    assert {value for _, attributes in tags for name, value in attributes.items() if name in {"src", "href"}} == {
        "data:,"
    }
    policies = [attributes["content"] for _, attributes in tags if "http-equiv" in attributes]
    assert policies
    assert "default-src 'none'" in (policies[0] or "")
    assert "http" not in (policies[0] or "")


@pytest.mark.parametrize("text", INJECTIONS)
def test_no_text_adds_an_element(text: str) -> None:
    def tags(family: str) -> list[str]:
        data = build_page_data([run_of(report(family=family))], generated_at="", version="")
        return [tag for tag, _ in _Tags(render_page(data, ASSETS, title=family)).found]

    assert tags(text) == tags("etl")


def test_a_script_with_an_end_tag_is_not_cut_short() -> None:
    text = render_page(EMPTY, ASSETS, title="a")
    assert text.count("</script>") == 7
    assert r"var a = '<\/script>';" in text


def test_the_chart_library_is_text_until_a_chart_needs_it() -> None:
    (script,) = (
        found for tag, found in _Tags(render_page(EMPTY, ASSETS, title="a")).found if found.get("id") == "plotly"
    )
    assert script["type"] == "text/plain"


def test_the_chart_library_is_the_file_of_its_tool() -> None:
    assert hashlib.sha256(BUNDLE.read_bytes()).hexdigest() == SHA256
    assert f"v{VERSION}\n" in BUNDLE.read_text()[:200]


@pytest.mark.parametrize("text", INJECTIONS)
def test_no_text_ends_the_script_element_around_the_data(text: str) -> None:
    data = build_page_data([run_of(report(text, family=text))], generated_at=text, version=text).text
    assert re.fullmatch("[A-Za-z0-9+/=]+", data)
    assert unpacked(data)["runs"][0]["family"] == text


def test_the_import_map_holds_the_modules() -> None:
    (address,) = json.loads(import_map({"a.js": "export const a = 'é';\n"}))["imports"].values()
    prefix, _, source = address.partition(",")
    assert prefix == "data:text/javascript;base64"
    assert base64.b64decode(source).decode() == "export const a = 'é';\n//# sourceURL=page/a.js\n"


def test_modules_import_only_modules_of_the_page() -> None:
    modules = read_assets().modules
    assert "main.js" in modules
    for name, text in modules.items():
        imported = re.findall(r'from "([^"]*)"', text)
        assert {one.removeprefix("#page/") for one in imported} <= modules.keys() - {name}
        assert "import(" not in text


def test_lines_of_scripts_and_styles_are_short() -> None:
    assets = read_assets()
    for text in (*assets.modules.values(), assets.browser_check, assets.style):
        assert max(map(len, text.splitlines())) <= MAX_LINE_LENGTH
