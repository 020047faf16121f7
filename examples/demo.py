"""The program behind ``make demo``: profile a small batch, print its report, and generate the HTML report of its runs.

python examples/demo.py TASK_PROFILER_COMMAND PAGE.html
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from profiler.record.record_model import decode
from profiler.record.text_line import report_text

_BATCH = Path(__file__).with_name("nightly_etl.py")
# Two smaller runs, so that the page has runs to compare.
_QUIET_DAY_ROWS = (300_000, 600_000)


def main() -> None:
    """Run the batch, print its report, run it twice with fewer rows, and generate the page."""
    command, page = sys.argv[1], Path(sys.argv[2])
    page.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="task-profiler-demo-") as name:
        folder = Path(name)
        file = folder / "runs.jsonl"
        profiled = (command, "run", "--history", str(folder / "history.sqlite3"), "--name", "nightly-etl")
        batch = ("--output", str(file), "--", sys.executable, str(_BATCH))
        print("$ task-profiler run --name nightly-etl --output runs.jsonl -- python nightly_etl.py", flush=True)
        exit_code = subprocess.run([*profiled, *batch], check=False).returncode
        _print_report(file.read_text().splitlines()[0], exit_code)
        print("\ntwo smaller runs, for the page of past runs …", flush=True)
        for rows in _QUIET_DAY_ROWS:
            subprocess.run([*profiled, *batch, "--rows", str(rows)], check=True, stdout=subprocess.DEVNULL)
        history = ("--history", str(folder / "history.sqlite3"))
        subprocess.run([command, "report", *history, "-o", str(page)], check=True, stdout=subprocess.DEVNULL)
    print(f"\nOpen {page.resolve()} in a browser: all three runs with their time series (task-profiler report).")
    sys.exit(exit_code)


def _print_report(line: str, exit_code: int) -> None:
    print(f"\nexit code {exit_code}; the report, one line of JSON (here formatted):\n")
    print(json.dumps(json.loads(line), indent=2))
    print("\nand as a line of text (run --format text), as AWS Lambda prints it:\n")
    print(report_text(decode(line)), flush=True)


if __name__ == "__main__":
    main()
