"""What ``make demo`` shows: a real little batch under the profiler, its report as JSON and as text.

python examples/demo.py TASK_PROFILER_COMMAND
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from profiler.record import decode
from profiler.text import report_text

_BATCH = Path(__file__).with_name("nightly_etl.py")


def main() -> None:
    """Run the batch once and show what is known of it."""
    with tempfile.TemporaryDirectory(prefix="task-profiler-demo-") as folder:
        file = Path(folder, "runs.jsonl")
        options = ("--no-history", "--name", "nightly-etl", "--output", str(file))
        command = ("run", *options, "--", sys.executable, str(_BATCH))
        print(
            "$ task-profiler run --name nightly-etl --output runs.jsonl -- python examples/nightly_etl.py", flush=True
        )
        exit_code = subprocess.run([sys.argv[1], *command], check=False).returncode
        line = file.read_text().strip()
    print(f"\nexit code {exit_code}; the report, one line of JSON (here on several):\n")
    print(json.dumps(json.loads(line), indent=2))
    print("\nand as a line of text (run --format text), as AWS Lambda prints it:\n")
    print(report_text(decode(line)))
    sys.exit(exit_code)


if __name__ == "__main__":
    main()
