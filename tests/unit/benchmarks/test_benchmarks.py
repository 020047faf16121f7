"""The output of the benchmarks: figures, tables and the machine; and the timed searches."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.__main__ import all_benchmarks, write
from benchmarks.figures import BenchmarkResult, Figure, figures_table, print_and_save, report_page
from benchmarks.local import NoOpOverhead, Row
from benchmarks.local import table as rivals_table
from benchmarks.machine import Machine, cpu_model
from benchmarks.measured_process import read_memory
from benchmarks.panels import DashboardView, PanelTime, panel_search
from benchmarks.scale import IndexSize, Measurement
from benchmarks.scale import table as scale_table
from benchmarks.simulated_metrics import scrape_function
from kibana.all_dashboards import DASHBOARDS
from profiler.collectors.nvidia.gpu_usage import THROTTLE_REASONS
from profiler.prometheus.snapshot import MAX_CONTAINERS
from profiler.record.bounded_json_line import MAX_GPUS, MAX_NEURON_CORES
from tests.panel_searches import search_body

START, END = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
finite = st.floats(-1e9, 1e9)


def test_the_simulated_metrics_reach_the_exporters_limits() -> None:
    text = scrape_function(MAX_CONTAINERS, MAX_GPUS, MAX_NEURON_CORES, ticks=True)().decode()
    series = [line for line in text.splitlines() if not line.startswith("#")]
    assert sum("container=" in line for line in series) == 10 * MAX_CONTAINERS
    assert sum("uuid=" in line for line in series) == (8 + len(THROTTLE_REASONS)) * MAX_GPUS
    assert sum("neuron_core=" in line for line in series) == 2 * MAX_NEURON_CORES


def test_only_a_new_tick_renders_the_metrics_again() -> None:
    anew, again = scrape_function(3, 0, 0, ticks=True), scrape_function(3, 0, 0, ticks=False)
    assert anew() != anew()
    assert again() is again()


@given(finite, finite)
def test_a_figure_is_met_within_its_inclusive_bound(value: float, bound: float) -> None:
    assert Figure(name="x", value=value, unit="s", at_most=bound).is_met is (value <= bound)
    assert Figure(name="x", value=value, unit="s", at_least=bound).is_met is (value >= bound)
    assert Figure(name="x", value=value, unit="s").is_met is None


def test_the_table_shows_whether_each_figure_is_met() -> None:
    figures = (
        Figure(name="CPU", value=0.1234, unit="% of a core", digits=3, at_most=0.15),
        Figure(name="rate", value=4999.4, unit="reports/s", digits=0, at_least=5000, note="cold"),
        Figure(name="ratio", value=0.8, unit="×"),
    )
    assert figures_table(figures).splitlines() == [
        "| name | measured | target |  |",
        "| --- | --: | --: | --- |",
        "| CPU | 0.123 % of a core | ≤ 0.15 | met |",
        "| rate | 4,999 reports/s | ≥ 5,000 | **not met**, cold |",
        "| ratio | 0.80 × |  |  |",
    ]


def test_a_figure_is_one_line_on_a_terminal() -> None:
    assert Figure(name="CPU", value=0.2, unit="%", at_most=0.15).line() == "CPU: 0.20 % (≤ 0.15: NOT MET)"
    assert Figure(name="ratio", value=2, unit="×", note="twice").line() == "ratio: 2.00 ×, twice"


def test_the_page_counts_met_targets_and_names_skipped_benchmarks() -> None:
    results = (
        BenchmarkResult(
            title="Monitor", figures=(Figure(name="CPU", value=1, unit="%", at_most=2),), tables=("| a |",)
        ),
        BenchmarkResult(title="Forwarder", skip_reason="Java is not there."),
    )
    text = report_page(results)
    assert text.startswith("1 of 1 targets met.\n\n## Monitor\n\n| name |")
    assert "\n\n| a |\n\n" in text
    assert text.endswith("## Forwarder\n\nNot measured: Java is not there.\n")


def test_a_result_survives_the_round_trip_through_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = BenchmarkResult(
        title="Monitor", figures=(Figure(name="CPU", value=1.5, unit="%", at_most=2),), tables=("| a |",)
    )
    print_and_save(result, tmp_path / "part.json")
    assert msgspec.json.decode((tmp_path / "part.json").read_bytes(), type=BenchmarkResult) == result
    assert capsys.readouterr().out == "CPU: 1.50 % (≤ 2: met)\n| a |\n"


def test_both_files_contain_the_machine_and_the_time(tmp_path: Path) -> None:
    machine = Machine(cpu="A CPU", cores=2, memory_gib=23.4, kernel="6.1", python="3.11.2", load=1.25)
    write(tmp_path / "new", machine, START, [BenchmarkResult(title="Monitor", skip_reason="No.")])
    text = (tmp_path / "new" / "bench.md").read_text()
    assert text.startswith(
        "Measured on 2026-11-01: A CPU, 2 cores, 23 GiB, Linux 6.1, Python 3.11.2; load 1.2 at the start"
    )
    document = json.loads((tmp_path / "new" / "bench.json").read_text())
    assert document["machine"]["cores"] == 2
    assert document["measuredAt"] == "2026-11-01T00:00:00+00:00"
    assert document["parts"] == [{"title": "Monitor", "skip_reason": "No."}]


def test_every_benchmark_has_a_module() -> None:
    found = all_benchmarks(Path("installed"), Path("rivals"))
    folder = Path(__file__).parents[3] / "benchmarks"
    assert all((folder / f"{benchmark.module}.py").exists() for benchmark in found)
    usual = {benchmark.module for benchmark in found if not benchmark.is_extra}
    devices, why = {"nvml", "neuron"}, {"why_threads", "why_cost"}
    notices = {"notices", "schedules", "unusual_runs"}
    assert usual == {"monitor", "local", "short_runs", "html_report", "forwarder", *notices, *devices, *why}
    assert {benchmark.module for benchmark in found} - usual == {"comparison", "why", "why_kills"}


def test_a_number_that_a_tool_does_not_report_is_a_dash() -> None:
    row = Row(
        tool="x",
        no_op=NoOpOverhead(extra_ms=12.3, cpu_ms=99.6),
        spikes=7,
        spikes_found=0,
        worst_peak_error_percent=None,
        cpu_error_percent={"burn 2": None, "forks 8": -26.24, "short 2000": 0.0},
    )
    head, _, line = rivals_table([row]).splitlines()
    assert head.startswith("| tool | added to `true` | CPU time | spikes found of 7 | worst peak error | CPU: burn 2 |")
    assert head.count("|") == line.count("|")
    assert line == "| x | +12 ms | 100 ms | 0 | - | - | -26.2 % | 0.0 % |"


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.key)
def test_a_timed_search_is_the_panels_search_limited_to_one_run_on_the_run_dashboard(dashboard: object) -> None:
    view = DashboardView(start=START, end=END, task_id="abc")
    (found,) = (one for one in DASHBOARDS if one is dashboard)
    for panel in found.charts:
        body = panel_search(found, panel, view)
        is_one_run = found.key == "task-run"
        assert ({"term": {"task.id": "abc"}} in body["query"]["bool"]["filter"]) is is_one_run
        own = search_body(panel, START, END, interval="1m" if is_one_run else "12h")
        assert body["aggs"] == own["aggs"]


def test_the_scale_table_has_a_column_for_each_size_and_a_row_for_each_panel() -> None:
    def step(reports: int) -> Measurement:
        return Measurement(
            reports=reports,
            single_event_ms=5.25,
            single_event_cpu_ms=2,
            direct_rate=180,
            direct_requests=180,
            stream_rate=2000,
            stream_cpu_rate=5000,
            stream_requests=4,
            recommend_seconds=1.75,
            indices=(
                IndexSize(
                    kind="reports",
                    documents=reports,
                    line_bytes=2337.1,
                    store_bytes=2 * 2**20,
                    segments=3,
                    merged_bytes=2**20,
                    merge_seconds=1,
                ),
            ),
            panels=(PanelTime(dashboard="task-overview", panel="p", documents=7, median_ms=1234.4, max_ms=2),),
        )

    rows = scale_table([step(1024), step(2048)]).splitlines()
    assert rows[0] == "|  | 1,024 reports | 2,048 reports |"
    assert "| 500 records per event: bulk requests/s | 4.0 | 4.0 |" in rows
    assert "| reports: bytes per document on disk | 2,048 | 1,024 |" in rows
    assert "| reports: bytes per document, force-merged | 1,024 | 512 |" in rows
    assert "| recommend for all families, s | 1.75 | 1.75 |" in rows
    assert rows[-1] == "| task-overview / p, ms | 1,234 | 1,234 |"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("processor\t: 0\nmodel name\t: AMD EPYC\nflags\t: a b\n", "AMD EPYC"),
        ("processor\t: 0\nCPU part\t: 0xd40\n", "CPU part 0xd40"),
        ("", "CPU part unknown"),
    ],
)
def test_the_processor_model_comes_from_cpuinfo(text: str, name: str) -> None:
    assert cpu_model(text) == name


def test_read_memory_returns_the_kernels_numbers() -> None:
    found = read_memory(os.getpid())
    assert 0 < found.pss_mib <= found.rss_mib <= 1.1 * found.peak_mib  # the mark's counter is not exact to the page


def test_read_memory_of_an_ended_process_raises() -> None:
    with pytest.raises(OSError, match="No such file"):
        read_memory(2**22 + 1)
