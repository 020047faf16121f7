"""What several browser tests look for in a page."""

from playwright.sync_api import Page

INJECTIONS = (
    "</script><script>window.hurt=1</script>",
    "<img src=x onerror='window.hurt=1'>",
    "<b>bold</b><br><a href='javascript:window.hurt=1'>link</a>",
    "&lt;i&gt;",
    "%{y}$\\alpha$",
    "2026-01-01",
    "1",
    "constructor",
    "__proto__",
    "\u202egnorw\u2028",
    "x" * 300,
)


OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def count(tab: Page) -> int:
    return int(tab.get_attribute("#runs", "data-count") or "-1")


def wait_for_count(tab: Page, expected: int) -> None:
    tab.wait_for_selector(f"#runs[data-count='{expected}']")
