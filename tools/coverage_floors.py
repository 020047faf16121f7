"""Checks the measured coverage (.coverage) against the floors in pyproject.toml, table
tool.task-profiler.coverage.

python -m tools.coverage_floors
"""

import json
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from coverage import Coverage
from coverage.exceptions import CoverageException

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Print each violated floor; the exit code is 1 if there is one."""
    floors = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["task-profiler"][
        "coverage"
    ]
    try:
        violations = tuple(violated_floors(floors, _measure_coverage()))
    except CoverageException as error:
        violations = (f"There is no coverage to check ({error}): run make coverage.",)
    sys.stderr.writelines(f"{violation}\n" for violation in violations)
    return 1 if violations else 0


def violated_floors(floors: Mapping[str, Any], measured: Mapping[str, Any]) -> Iterator[str]:
    """Each violated floor as a sentence; ``measured`` is coverage's JSON report."""
    total = measured["totals"]["percent_covered"]
    if total < floors["total"]:
        yield f"The tests cover {total:.2f} % of everything; the floor is {floors['total']} %."
    percents = {
        path: file["summary"]["percent_covered"] for path, file in measured["files"].items()
    }
    yield from _violated_by_pure_modules(floors["pure"], floors["pure_modules"], percents)


def _violated_by_pure_modules(
    floor: float, patterns: Sequence[str], percents: Mapping[str, float]
) -> Iterator[str]:
    for pattern in patterns:
        matching = [path for path in percents if fnmatchcase(path, pattern)]
        if not matching:
            yield f"No measured file matches {pattern}: correct pure_modules in pyproject.toml."
        for path in matching:
            if percents[path] < floor:
                yield (
                    f"The tests cover {percents[path]:.2f} % of {path}; the floor of a pure "
                    f"module is {floor} %."
                )


def _measure_coverage() -> dict[str, Any]:
    coverage = Coverage()
    coverage.load()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "coverage.json"
        coverage.json_report(outfile=str(file))
        report: dict[str, Any] = json.loads(file.read_text())
        return report


if __name__ == "__main__":
    sys.exit(main())
