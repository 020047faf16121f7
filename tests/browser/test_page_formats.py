"""The page's JavaScript formats values as Python does."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from playwright.sync_api import Browser

from profiler.record import units
from profiler.report_page.html_document import read_assets
from tests.browser.conftest import LIMIT_MS
from tests.formats import CHANGES, DOLLARS, DOLLARS_A_MONTH, DURATIONS, MEMORY, PERCENTS, VCPUS

pytestmark = pytest.mark.browser
RANDOM_VALUES = 3000


def evaluated(
    browser: Browser, expression: str, values: Sequence[Any], module: str = "formats"
) -> list[str]:
    """Return what an expression with the functions of formats.js, or of another module, makes of
    each value.
    """
    page = browser.new_page()
    page.set_default_timeout(LIMIT_MS)
    page.set_content(f'<script type="importmap">{read_assets()["modules"]}</script>')
    texts: list[str] = page.evaluate(
        f"async (values) => {{ const formats = await import('#page/{module}.js'); "
        f"return values.map((value) => formats.{expression}); }}",
        values,
    )
    page.close()
    return texts


@pytest.mark.parametrize(
    ("function", "python", "cases"),
    [
        ("asDuration", units.format_duration, DURATIONS),
        ("asMemory", units.format_memory, MEMORY),
        ("asVcpu", units.format_vcpu, VCPUS),
        ("asPercent", units.format_percent, PERCENTS),
        ("asUsd", units.format_usd, DOLLARS),
        ("asUsdAMonth", units.format_usd_a_month, DOLLARS_A_MONTH),
    ],
)
def test_the_page_has_the_formats_of_the_terminal(
    browser: Browser,
    function: str,
    python: Callable[[float], str],
    cases: tuple[tuple[float, str], ...],
) -> None:
    assert evaluated(browser, f"{function}(value)", [value for value, _ in cases]) == [
        text for _, text in cases
    ]
    chance = random.Random(function)
    values = [10 ** chance.uniform(-7, 10) for _ in range(RANDOM_VALUES)]
    values += [
        chance.randrange(1 << 20) / 8 for _ in range(RANDOM_VALUES)
    ]  # with ties between two roundings
    assert evaluated(browser, f"{function}(value)", values) == [python(value) for value in values]


def test_the_page_has_the_task_sizes_and_the_changes_of_the_terminal(browser: Browser) -> None:
    sizes = [(1, 2048), (0.25, 512), (None, 1024), (4, None)]
    texts = evaluated(
        browser, "asTaskSize(value)", [{"vcpu": vcpu, "memoryMB": mb} for vcpu, mb in sizes]
    )
    assert texts == [units.format_task_size(*size) for size in sizes]
    chance = random.Random("changes")
    pairs = [(new, old) for new, old, _ in CHANGES]
    pairs += [
        (10 ** chance.uniform(-3, 5), 10 ** chance.uniform(-3, 5)) for _ in range(RANDOM_VALUES)
    ]
    texts = evaluated(browser, "asChangeFrom(...value, formats.asMemory)", pairs)
    assert texts == [units.format_change(*pair, units.format_memory) for pair in pairs]


def test_a_cell_has_at_most_three_characters_of_a_share(browser: Browser) -> None:
    percents = [0, 0.2, 1, 45.4, 99.4, 99.86, 100, 100.4]
    expression = "cellLines({ percent: value }).join()"
    texts = evaluated(browser, expression, percents, module="morning_grid")
    assert texts == ["0", "<1", "1", "45", "99", ">99", "100", "100"]
