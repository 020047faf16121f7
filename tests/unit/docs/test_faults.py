"""The page of faults names tests that there are, and every test of a fault stands on it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "faults.md").read_text()
DEFINED = re.compile(r"^def (test_\w+)\(", re.MULTILINE)


def names_below(folder: str) -> set[str]:
    paths = (ROOT / "tests" / folder).rglob("test_*.py")
    return {name for path in paths for name in DEFINED.findall(path.read_text())}


def test_every_test_on_the_page_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 50
    assert named - names_below(".") == set()


def test_every_fault_names_a_test_at_its_end() -> None:
    faults = [line for line in PAGE.partition("## Limits")[0].splitlines() if line.startswith("- ")]
    assert len(faults) > 50
    assert [line for line in faults if not re.search(r"[.:] (`test_\w+` ?)+$", line)] == []


def test_every_test_of_a_fault_is_on_the_page_or_about_secrets() -> None:
    paths = [ROOT / "tests" / "faults" / f"test_{part}_faults.py" for part in ("monitor", "forwarder")]
    written = {name for path in paths for name in DEFINED.findall(path.read_text())}
    assert written - set(re.findall(r"`(test_\w+)`", PAGE)) == set()
