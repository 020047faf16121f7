"""What a short run does without: each import delays every command that ``run`` profiles."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

_IMPORTED_BEFORE_THE_START = "profiler.cli.wiring.run_and_report, profiler.cli.wiring.build_session"
_NOT_FOR_A_RECORD = {
    "click",
    "dataclasses",
    "hashlib",
    "json",
    "pathlib",
    "sqlite3",
    "subprocess",
    "profiler.aggregation.time_series",
    "profiler.core.json_fields",
    "profiler.core.look_times",
    "profiler.core.redaction",
    "profiler.core.threads",
    "profiler.readers.linux.instance",
    "profiler.readers.linux.kernel_view",
    "profiler.readers.linux.memory_shares",
    "profiler.readers.linux.merged_pages",
    "profiler.readers.linux.packet_rings",
    "profiler.record.fact_list",
    "profiler.record.metric_catalogue",
    "profiler.record.process_rows",
    "profiler.runs",
}


def _loaded(modules: str) -> set[str]:
    code = f"import sys; sys.path[:] = {sys.path!r}; import {modules}; print(*sys.modules)"
    words = (sys.executable, "-I", "-S", "-c", code)
    # Python imports a module to compile a source that names a character: the first process does.
    subprocess.run(words, check=True, capture_output=True)
    return set(subprocess.run(words, check=True, capture_output=True, text=True).stdout.split())


def test_the_start_of_a_run_imports_nothing_that_only_readers_of_records_need() -> None:
    loaded = _loaded(_IMPORTED_BEFORE_THE_START)
    assert "profiler.record.record_model" in loaded
    assert not loaded & _NOT_FOR_A_RECORD


_NOT_WITHOUT_GPUS_AND_CHANGES = {
    "profiler.record.gpu_facts",
    "profiler.record.gpu_sentences",
    "profiler.record.xids",
    "profiler.runs.comparison",
}


def test_a_short_run_imports_neither_patterns_nor_enumerations(tmp_path: Path) -> None:
    """Typing and msgspec ask for both, and later modules for the first; pip's old scripts do not
    count.
    """
    loaded = _loaded(
        "os, profiler.cli; "
        f"os.environ['TASK_PROFILER_HISTORY'] = {str(tmp_path / 'history')!r}; "
        "assert profiler.cli.run_without_click(['--', 'true']) == 0; "
        # From Python 3.14 on, typing itself makes enumerations.
        "assert sys.version_info >= (3, 14) or type(sys.modules['enum']).__name__ == '_StandIn'"
    )
    assert {"typing", "msgspec", "profiler.record.stop_causes"} <= loaded
    assert not loaded & {"re._parser", "_strptime", "profiler.core.quantity_parsing"}
    assert not loaded & _NOT_WITHOUT_GPUS_AND_CHANGES
    assert "sqlite3" in loaded
    assert "sqlite3.dbapi2" not in loaded


def test_a_run_without_readings_is_added_to_the_history_without_the_modules_of_its_steps() -> None:
    loaded = _loaded("profiler.runs.history.recorder, profiler.runs.history.run_database")
    assert not loaded & {"profiler.aggregation.time_series", "profiler.runs.step_series"}


def test_a_command_line_without_secrets_needs_no_names_of_secrets() -> None:
    masked = _loaded("profiler.core.redaction as own; print(own.redact(['./build', '--all']))")
    assert {"./build", "--all", "profiler.core.redaction.masking"} <= masked
    assert "profiler.core.redaction.secret_stems" in masked
    others = ("arguments", "forms", "names", "settings", "values")
    assert not masked & {f"profiler.core.redaction.secret_{name}" for name in others}


def test_a_command_without_arguments_needs_no_programs_with_secret_arguments() -> None:
    code = "profiler.core.redaction as own; print(own.redact(['{}', *'{}'.split()]))"
    programs = "profiler.core.redaction.secret_programs"
    assert programs not in _loaded(code.format("/opt/mysql", ""))
    assert programs in _loaded(code.format("/opt/mysql", "-pX"))


def test_the_end_for_a_person_imports_no_log_streams_and_no_digests() -> None:
    loaded = _loaded("profiler.cli.terminal.end_page")
    assert "profiler.runs.past_runs.past_run" in loaded
    unneeded = {
        "fnmatch",
        "hashlib",
        "unicodedata",
        "profiler.cli.tables",
        "profiler.cli.terminal.run_curves",
        "profiler.core.json_fields",
        "profiler.record.family_identity",
        "profiler.record.family_statistics",
        "profiler.runs.past_runs.run_source",
    }
    unneeded |= {
        f"profiler.record.{name}"
        for name in ("line_trust", "metric_catalogue", "report_head", "stopped_task")
    }
    assert not loaded & unneeded


def test_what_a_run_asks_its_history_while_it_runs_imports_no_causes_of_ends() -> None:
    loaded = _loaded("profiler.cli.local_family_history")
    assert "profiler.record.record_model" in loaded
    assert not loaded & {f"profiler.record.{name}" for name in ("hardware", "stop_causes", "xids")}


@pytest.mark.parametrize(
    ("after_ns", "command", "seen"), [(10**12, "true", "ended"), (0, "sleep 1", "running")]
)
def test_what_the_end_needs_is_imported_after_a_short_command_and_during_a_long_one(
    tmp_path: Path, after_ns: int, command: str, seen: str
) -> None:
    """Else the imports would be a part of the duration of a command that ends meanwhile."""
    code = f"""
        import os
        import sys
        sys.path[:] = {sys.path!r}
        os.environ["TASK_PROFILER_HISTORY"] = {str(tmp_path / "history")!r}
        from profiler.cli.wiring.build_session import _Surroundings
        from profiler.local_run import session
        session._IMPORTS_AFTER_NS = {after_ns}
        def look(_surroundings):
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                ended = True
            print("ended" if ended else "running")
        _Surroundings.import_for_end = look
        from profiler.cli import run_without_click
        run_without_click(["--quiet", "--", *{command.split()!r}])
    """
    words = (sys.executable, "-I", "-S", "-c", dedent(code))
    finished = subprocess.run(words, check=True, capture_output=True, text=True)
    assert finished.stdout.split() == [seen]
