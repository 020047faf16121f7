"""The documentation names what the code has."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import profiler
from profiler.record import json_schema

ROOT = Path(profiler.__file__).parent.parent
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


def field_names(schema: dict[str, Any]) -> Iterator[str]:
    for definition in schema["$defs"].values():
        yield from definition["properties"]


def test_every_setting_of_the_monitor_is_documented() -> None:
    source = (ROOT / "profiler" / "settings.py").read_text()
    names = set(re.findall(r'reader\.(?:text|parsed)\(\s*"([A-Z_]+)"', source))
    assert len(names) >= 14
    page = (ROOT / "docs" / "monitor.md").read_text()
    assert {name for name in names if f"TASK_PROFILER_{name}" not in page} == set()


def test_every_field_of_the_record_is_documented() -> None:
    page = (ROOT / "docs" / "record.md").read_text()
    later = {"Cost", "Recommendation"}
    schema = json_schema()
    schema["$defs"] = {name: part for name, part in schema["$defs"].items() if name not in later}
    assert {name for name in field_names(schema) if not re.search(rf"\b{name}\b", page)} == set()


@pytest.mark.parametrize(
    "page", sorted(path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]), ids=str
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = [target for target in LINK.findall((ROOT / page).read_text()) if "://" not in target]
    assert [target for target in targets if not (ROOT / page.parent / target).exists()] == []
