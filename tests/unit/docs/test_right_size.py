"""The examples of docs/right-size.md are outputs of the command."""

import re
from pathlib import Path

import pytest

import profiler
from profiler.cli.app import group
from profiler.record.record_model import Distribution, Metrics, Report
from tests.runs import lines, report, slowdown
from tests.unit.docs.test_shown_page import is_shortened

PAGE = Path(profiler.__file__).parent.parent / "docs" / "right-size.md"
BLOCK = re.compile(r"^```console\n\$ task-profiler (recommend .*?)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BILLED_MS = 1_800_000
INIT_MS = 20_000
WORST_RUN = 17


def nightly_etl(number: int) -> Report:
    is_worst = number == WORST_RUN
    bounds = {"v0_25": (1.31, 1.62), "v0_5": (1.02, 1.1)} if is_worst else {"v0_25": (1.2, 1.4), "v0_5": (1.0, 1.05)}
    return report(
        number,
        family="nightly-etl",
        task_id=f"etl-{number}",
        size=(1, 4096),
        peak_mb=821 - 5 * (29 - number),
        p95=0.3 if number != 21 else 0.48,
        status="failure" if number in (4, 11) else "success",
        others={"task-monitor": Metrics(max_memory_used_mb=31, vcpu_used=Distribution(p95=0.01))},
        metrics={
            "slowdown_at_vcpu": slowdown(**bounds),
            "vcpu_saturated_percent": 1.0,
            "init_duration_ms": INIT_MS,
            "duration_ms": BILLED_MS - INIT_MS + (60_000 if number % 2 else -60_000),
            "billed_duration_ms": BILLED_MS + (60_000 if number % 2 else -60_000),
        },
    )


RUNS = [nightly_etl(number) for number in range(30)]


def test_the_example_is_the_commands_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ((command, shown),) = BLOCK.findall(PAGE.read_text())
    monkeypatch.chdir(tmp_path)
    Path("reports.jsonl").write_bytes(lines(RUNS))
    group.main(command.split(), standalone_mode=False)
    assert is_shortened(shown, capfd.readouterr().out)
