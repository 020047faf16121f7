"""The tools of this repository: coverage floors, the fuzzer's settings, releases, the site and
the README's picture.
"""

import random
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from markdown_it import MarkdownIt

from profiler.record.held_huge_pages import huge_pages_text
from profiler.record.mapped_files import mapped_files_text
from profiler.record.record_model import encode
from tests.cases import each_case
from tests.conftest import is_read
from tests.documentation import ROOT, pages
from tools.coverage_floors import violated_floors
from tools.example_fleet import FLEET, MORNING
from tools.fleet_record import RunProfile
from tools.fleet_record import generate_report as run_report
from tools.release import CHECKSUMS, ReleaseError, run_and_read, write_checksums
from tools.site_hooks import BrokenLinkError, indent_lists, link_to_repository
from tools.terminal_picture import (
    FOLDER,
    RESIZE,
    SHOW,
    draw_svg,
    printed_in_colour,
    printed_plan,
    shown_reports,
)

REPOSITORY = "https://github.com/task-profiler/task-profiler"
DOCS = [page for page in pages() if page.parts[0] == "docs"]
MATH = "profiler/core/optional_math.py"
FLOORS = {"total": 80, "pure": 95, "pure_modules": [MATH, "profiler/sizing/*.py"]}


def report(total: float, files: Mapping[str, float]) -> dict[str, Any]:
    """A report as coverage writes it as JSON, reduced to what is read."""
    return {
        "totals": {"percent_covered": total},
        "files": {
            path: {"summary": {"percent_covered": percent}} for path, percent in files.items()
        },
    }


@pytest.mark.parametrize(
    ("total", "known", "trend", "sentence"),
    [
        (79.99, 95, 95, "The tests cover 79.99 % of everything; the floor is 80 %."),
        (80, 94.99, 95, f"The tests cover 94.99 % of {MATH}; the floor of a pure module is 95 %."),
        (
            80,
            95,
            50,
            (
                "The tests cover 50.00 % of profiler/sizing/advice_reasons.py; the floor of a pure "
                "module is 95 %."
            ),
        ),
    ],
)
def test_each_floor_is_checked_by_itself_and_each_pattern_matches_a_file(
    total: float, known: float, trend: float, sentence: str
) -> None:
    assert list(
        violated_floors(
            FLOORS, report(total, {MATH: known, "profiler/sizing/advice_reasons.py": trend})
        )
    ) == [sentence]
    # A module that was moved would otherwise be left out without a word.
    assert list(violated_floors(FLOORS, report(90, {MATH: 100}))) == [
        "No measured file matches profiler/sizing/*.py: correct pure_modules in pyproject.toml."
    ]


@each_case(
    ("when", "outcome", "titles", "expected"),
    [
        ("setup", "passed", ("Captured stdout setup",), False),
        ("setup", "failed", (), True),
        ("setup", "skipped", (), True),
        ("call", "passed", (), True),
        ("call", "failed", (), True),
        ("teardown", "passed", ("Captured stdout setup", "Captured log call"), False),
        ("teardown", "passed", ("Captured stdout setup", "Captured log teardown"), True),
        ("teardown", "failed", (), True),
    ],
)
def test_a_process_of_the_tests_sends_each_report_that_pytest_counts_or_shows(
    when: str, outcome: str, titles: tuple[str, ...], *, expected: bool
) -> None:
    sections = [(title, "said") for title in titles]
    assert is_read({"when": when, "outcome": outcome, "sections": sections}) is expected


def test_the_tests_try_the_same_examples_on_every_machine(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--hypothesis-profile"):
        pytest.skip("make fuzz has seeds of its own")
    assert settings.get_current_profile_name() == "first-examples"
    assert settings.default is not None
    assert settings.default.derandomize


def test_ci_tries_all_examples_of_each_property() -> None:
    """`make test` tries the first ones."""
    first, every = map(settings.get_profile, ("first-examples", "same-examples"))
    assert first.max_examples < every.max_examples
    assert every.derandomize
    rules = (ROOT / "Makefile").read_text().split("\n\n")
    (slow,) = (rule for rule in rules if rule.startswith("slow:"))
    (command,) = (line for line in slow.splitlines() if "or hypothesis)" in line)
    assert "--hypothesis-profile same-examples" in command
    mark = "from hypothesis import"
    assert f"-e '{mark}' --include='test_*.py' tests" in command
    files = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    properties = [text for text in files if re.search(r"^ *@given\b", text, re.MULTILINE)]
    assert len(properties) > 50
    assert all(mark in text for text in properties)


def test_sha256sum_accepts_the_checksums(tmp_path: Path) -> None:
    (tmp_path / "b.zip").write_bytes(b"b")
    (tmp_path / "a.whl").write_bytes(b"a")
    assert [line.split()[1] for line in write_checksums(tmp_path).splitlines()] == [
        "a.whl",
        "b.zip",
    ]
    check = ["sha256sum", "--check", "--strict", CHECKSUMS]
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    (tmp_path / "a.whl").write_bytes(b"changed")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, check=False).returncode == 1


def test_a_failed_command_is_named_with_its_output(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"^sh -c echo no; exit 3 failed in .*:\nno\n$"):
        run_and_read("sh", "-c", "echo no; exit 3", folder=tmp_path)


def html(markdown: str) -> str:
    """The page as GitHub renders it.

    An empty line between items adds paragraphs, which say nothing.
    """
    return re.sub(r"</?p>|\n", "", MarkdownIt().enable("table").render(markdown))


@each_case("page", DOCS, ids=str)
def test_a_page_keeps_its_content(page: Path) -> None:
    text = (ROOT / page).read_text()
    assert html(indent_lists(text)) == html(text)


def test_lists_are_indented_by_four_and_begin_after_an_empty_line() -> None:
    text = (
        "Intro:\n1. One\n   two\n\n   ```sh\n   run\n     it\n   ```\n   - inner\n     text\n2. "
        "Next\nEnd\n"
    )
    assert indent_lists(text) == (
        "Intro:\n\n1. One\n    two\n\n    ```sh\n    run\n      it\n    ```\n\n"
        "    - inner\n        text\n2. Next\nEnd\n"
    )


def test_links_out_of_the_documentation_lead_to_the_repository_if_the_file_is_there() -> None:
    text = (
        "[a](../lambda/template.yaml) [b](../taskdef) [c](../SECURITY.md#reporting) "
        "[d](image.md)\n\n[e]: ../Makefile\n"
    )
    assert link_to_repository(text, "deployment.md", REPOSITORY, "v1") == (
        f"[a]({REPOSITORY}/blob/v1/lambda/template.yaml) [b]({REPOSITORY}/tree/v1/taskdef) "
        f"[c]({REPOSITORY}/blob/v1/SECURITY.md#reporting) [d](image.md)\n\n[e]: "
        f"{REPOSITORY}/blob/v1/Makefile\n"
    )
    inside = "[a](../cost.md) [b](../how-to/clusters.md)"
    assert link_to_repository(inside, "how-to/aws-batch.md", REPOSITORY, "v1") == inside
    with pytest.raises(BrokenLinkError, match=r"docs/how-to/x\.md has a link to lambda/gone\.py"):
        link_to_repository("[a](../../lambda/gone.py)", "how-to/x.md", REPOSITORY, "main")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["show", "resize"])
def test_a_picture_is_the_commands_output_and_loads_and_runs_nothing(name: str) -> None:
    drawn = (
        draw_svg(SHOW, printed_in_colour(SHOW, FOLDER / "show.jsonl"))
        if name == "show"
        else draw_svg(RESIZE, printed_plan())
    )
    picture = (FOLDER / f"{name}.svg").read_text()
    assert picture == drawn, "run python -m tools.terminal_picture"
    assert set(re.findall(r"https?://[^\"<) ]+", picture)) == {"http://www.w3.org/2000/svg"}
    assert "<script" not in picture


@pytest.mark.slow
def test_the_runs_of_the_picture_are_those_of_the_example_account() -> None:
    lines = (FOLDER / "show.jsonl").read_bytes().splitlines()
    assert lines == [encode(report) for report in shown_reports()]


def test_the_example_account_has_what_the_memory_used_lacks() -> None:
    profile = RunProfile(
        status="success",
        exit_code=0,
        is_killed=False,
        duration_ms=60_000,
        init_ms=1000,
        cpu=0.5,
        memory=0.4,
    )
    kept = set()
    held = set()
    for batch in FLEET:
        metrics = run_report(batch, profile, MORNING, random.Random(1)).record.metrics
        assert not metrics.counts_files, "a record of the present schema says files apart"
        if mapped_files_text(metrics):
            kept.add(batch.family)
        if huge_pages_text(metrics):
            held.add(batch.family)
    assert kept == {"search-index", "geo-tiles", "nightly-etl"}
    assert held == {"fraud-scores"}
