"""Sets of real runs: four programs, run in turn by ``task-profiler run`` with the records of all runs in one file."""

import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from profiler.comparison.compared_metrics import COMPARED_METRICS
from profiler.record.record_model import decode

PROGRAMS: Final[Mapping[str, str]] = {
    "json": """
import json
rows = [{"id": n, "name": f"row {n}", "values": list(range(n % 20))} for n in range(40_000)]
for _ in range(7):
    rows = json.loads(json.dumps(rows))
""",
    "sqlite": """
import os, sqlite3, sys
database = sqlite3.connect(os.path.join(sys.argv[1], f"{os.getpid()}.db"))
database.execute("create table t (n integer primary key, text text)")
for start in range(0, 600_000, 10_000):
    database.executemany("insert into t values (?, ?)", ((n, "x" * (n % 100)) for n in range(start, start + 10_000)))
    database.commit()
database.close()
""",
    "gzip": """
import gzip, random
text = " ".join(random.Random(1).choices(["task", "batch", "run", "memory", "peak"], k=6_000_000)).encode()
gzip.decompress(gzip.compress(text, 6))
""",
    "http": """
import http.server, threading, time, urllib.request
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"x" * 200_000)
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
for _ in range(60):
    urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}").read()
    time.sleep(0.02)
""",
}

RunSets = Mapping[str, Mapping[str, Sequence[float]]]


def run_programs(runs: int, records: Path) -> None:
    """Run each program ``runs`` times, in turn, and append the records to a file."""
    with tempfile.TemporaryDirectory(prefix="bench-comparison-") as folder:
        for number in range(runs):
            for name, program in PROGRAMS.items():
                print(f"\rrun {number + 1} of {runs}: {name:8}", end="", file=sys.stderr, flush=True)
                _run(name, program, Path(folder), records)
    print(file=sys.stderr)


def _run(name: str, program: str, folder: Path, records: Path) -> None:
    profiler = [sys.executable, "-m", "profiler", "run", "--name", name, "--history", str(folder / "history.db")]
    command = [*profiler, "--output", str(records), "--", sys.executable, "-c", program, str(folder)]
    subprocess.run(command, check=True)


def read_sets(records: Path) -> RunSets:
    """The values of each metric of each program, in the order of the runs."""
    sets: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in records.read_bytes().splitlines():
        record = decode(line).record
        for metric in COMPARED_METRICS:
            value = metric.read(record)
            if value is not None:
                sets[record.family or ""][metric.name].append(value)
    return sets
