"""The page's JavaScript formats values as Python does."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from playwright.sync_api import Browser

from profiler.html_report.html_document import import_map, read_assets
from profiler.record.units import format_duration, format_memory, format_task_size, format_usd, format_vcpu
from tests.formats import DOLLARS, DURATIONS, MEMORY, VCPUS

pytestmark = pytest.mark.browser
RANDOM_VALUES = 3000
UNKNOWN = "\N{EN DASH}"


def evaluated(browser: Browser, function: str, values: Sequence[Any]) -> list[str]:
    """Return what the function of formats.js makes of each value."""
    page = browser.new_page()
    page.set_content(f'<script type="importmap">{import_map(read_assets().modules)}</script>')
    texts: list[str] = page.evaluate(
        "async ([name, values]) => { const formats = await import('#page/formats.js'); "
        "return values.map((value) => formats[name](value)); }",
        [function, values],
    )
    page.close()
    return texts


@pytest.mark.parametrize(
    ("function", "python", "cases"),
    [
        ("asDuration", format_duration, DURATIONS),
        ("asMemory", format_memory, MEMORY),
        ("asVcpu", format_vcpu, VCPUS),
        ("asUsd", format_usd, DOLLARS),
    ],
)
def test_the_page_has_the_formats_of_the_terminal(
    browser: Browser, function: str, python: Callable[[float], str], cases: tuple[tuple[float, str], ...]
) -> None:
    assert evaluated(browser, function, [value for value, _ in cases]) == [text for _, text in cases]
    chance = random.Random(function)
    values = [10 ** chance.uniform(-7, 10) for _ in range(RANDOM_VALUES)]
    values += [chance.randrange(1 << 20) / 8 for _ in range(RANDOM_VALUES)]  # with ties between two roundings
    assert evaluated(browser, function, values) == [python(value) for value in values]


def test_the_page_has_the_task_sizes_of_the_terminal(browser: Browser) -> None:
    sizes = [(1, 2048), (0.25, 512), (None, 1024), (4, None)]
    texts = evaluated(browser, "asTaskSize", [{"vcpu": vcpu, "mb": mb} for vcpu, mb in sizes])
    assert texts == [format_task_size(*size) for size in sizes]


def test_what_is_unknown_is_a_dash(browser: Browser) -> None:
    for function in ("asDuration", "asMemory", "asVcpu", "asUsd", "asPercent", "asBytes", "asRate", "asTime"):
        assert evaluated(browser, function, [None]) == [UNKNOWN]


def test_a_negative_saving_is_a_cost(browser: Browser) -> None:
    assert evaluated(browser, "asChange", [35.2, -100, 0.2, -0.4]) == [
        "saves 35 %",
        "costs 100 % more",
        "costs the same",
        "costs the same",
    ]
