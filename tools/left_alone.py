"""Print the families that ``taskdef resize`` leaves alone into their page, from the table of rules.

python tools/left_alone.py
"""

from pathlib import Path

from profiler.sizing.sizing_rules import left_alone_families

PAGE = Path(__file__).resolve().parent.parent / "docs" / "from-advice-to-effect.md"
_BEGIN = "<!-- make commands -->\n"
_END = "<!-- end -->\n"


def page_with_list(page: str) -> str:
    """The page's text with the list between its marks."""
    head, _, rest = page.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    rows = "".join(f"- {docs}\n" for docs in left_alone_families())
    return f"{head}{_BEGIN}\n{rows}\n{_END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(page_with_list(PAGE.read_text()))
