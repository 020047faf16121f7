"""The money below a plan of sizes."""

import pytest

from profiler.cli.printing import total_saving_text


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ((0.19,), "1 of 2 families, $0.19 a month of $0.96."),
        ((-0.5, 0.25), "2 of 2 families, $0.25 a month more than $0.96."),
        ((None,), "1 of 2 families, $0.00 a month of $0.96."),
    ],
)
def test_larger_sizes_cost_more_and_save_no_negative_amount(
    changes: tuple[float | None, ...], sentence: str
) -> None:
    assert total_saving_text(changes, (0.71, 0.25)) == sentence


def test_without_prices_the_families_are_counted() -> None:
    assert total_saving_text((None,), (None, None)) == "1 of 2 families would change."
