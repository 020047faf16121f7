"""Draw the README's pictures of the terminal as SVG: what `show` prints for
docs/images/show.jsonl, and `resize`.

    python -m tools.terminal_picture [FOLDER]

`show` reads a week of nightly-etl, a family of the example account, and `taskdef resize` three
weeks of five families, and an account on moto.
"""

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from profiler.record.record_model import Report, encode
from tools.example_documents import ended_reports
from tools.example_fleet import FLEET, MORNING
from tools.fleet_record import CLUSTER
from tools.moto_server import fake_aws, start_by_schedule

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "images"
SHOW = "task-profiler show nightly-etl"
RESIZE = "task-profiler taskdef resize --scheduled"
COLUMNS = 80
SHOWN_FAMILY = "nightly-etl"
SHOWN_DAYS = 7
# Three of which nobody has looked at the size, one that fits, and one that was killed.
RESIZED = ("geo-tiles", "churn-features", "session-export", "recommendations", "nightly-etl")
RESIZE_DAYS = 21
MOTO_ACCOUNT = "123456789012"
# The plan counts the days until now: on another day, the pictures would differ.
_IN_THAT_MORNING = f"""
from profiler.cli import main
from profiler.core.clock import SystemClock
SystemClock.wall_ns = lambda clock: {round(MORNING.timestamp())} * 10**9
main()
"""
# Dark, with a border: it is readable on light and on dark pages.
_THEME = TerminalTheme(
    (13, 17, 23),
    (230, 237, 243),
    [
        (72, 79, 88),
        (255, 123, 114),
        (63, 185, 80),
        (210, 153, 34),
        (88, 166, 255),
        (188, 140, 255),
        (57, 197, 207),
        (177, 186, 196),
    ],
    [
        (110, 118, 129),
        (255, 161, 152),
        (86, 211, 100),
        (227, 179, 65),
        (121, 192, 255),
        (210, 168, 255),
        (86, 212, 221),
        (240, 246, 252),
    ],
)
# rich's own format loads a font from another server.
_FORMAT = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"
     aria-label="Output of task-profiler">
  <style>
    .{unique_id}-matrix {{ font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; \
font-size: {char_height}px; line-height: {line_height}px; }}
    .{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: system-ui, sans-serif; }}
    {styles}
  </style>
  <defs>
    <clipPath id="{unique_id}-clip-terminal">
      <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
    </clipPath>
    {lines}
  </defs>
  {chrome}
  <g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
  </g>
</svg>
"""


def printed_in_colour(command: str, runs: Path, more: Mapping[str, str] | None = None) -> str:
    """Return what the command prints in colour in the morning of the pictures, for a terminal of
    at least 80 columns.
    """
    words = (sys.executable, "-c", _IN_THAT_MORNING, *command.split()[1:], "--from", str(runs))
    environment = {
        **os.environ,
        "COLUMNS": str(COLUMNS),
        "FORCE_COLOR": "1",
        "PYTHONUTF8": "1",
        "TZ": "UTC",
    }
    environment.pop("NO_COLOR", None)
    environment |= more or {}
    return subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout


def write_reports(file: Path, reports: Iterable[Report]) -> None:
    """Write the lines of the runs."""
    with file.open("wb") as lines:
        for report in reports:
            lines.write(encode(report) + b"\n")


def shown_reports() -> Iterator[Report]:
    """The runs of the family that ``show`` shows."""
    return ended_reports(MORNING, families=(SHOWN_FAMILY,), days=SHOWN_DAYS)


def reports_of_account(families: Collection[str], days: int) -> Iterator[Report]:
    """The runs of the account on moto, all of the first revision."""
    for report in ended_reports(MORNING, families=families, days=days):
        record = replace(report.record, account_id=MOTO_ACCOUNT, task_arn=None, revision="1")
        yield replace(report, record=record)


def printed_plan() -> str:
    """Return the plan for families with a schedule each, of which one is pinned."""
    with tempfile.TemporaryDirectory(prefix="pictures-") as name, fake_aws() as aws:
        ecs = aws.client("ecs")
        scheduler = aws.client("scheduler")
        ecs.create_cluster(clusterName=CLUSTER)
        for batch in FLEET:
            if batch.family not in RESIZED:
                continue
            size = {"cpu": str(round(1024 * batch.vcpu)), "memory": str(batch.memory_mb)}
            containers = [{"name": "batch", "image": f"{batch.family}:1"}]
            ecs.register_task_definition(
                family=batch.family, containerDefinitions=containers, **size
            )
            start_by_schedule(
                scheduler, batch.family, "geo-tiles:1" if batch.family == "geo-tiles" else ""
            )
        file = Path(name) / "runs.jsonl"
        write_reports(file, reports_of_account(RESIZED, RESIZE_DAYS))
        return printed_in_colour(RESIZE, file, aws.environment())


def draw_svg(command: str, output: str) -> str:
    """Draw the output of a terminal as SVG."""
    text = Text.from_ansi(output.rstrip("\n"))
    width = max(COLUMNS, *(line.cell_len for line in text.split()))
    console = Console(
        width=width, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(text, soft_wrap=True)
    console.line()  # space below the last line
    name = "resize" if command == RESIZE else "show"
    picture = console.export_svg(title=command, theme=_THEME, code_format=_FORMAT, unique_id=name)
    return "".join(f"{row.rstrip()}\n" for row in picture.splitlines() if row.strip())


def main(arguments: Sequence[str]) -> None:
    """Write the pictures."""
    folder = Path(arguments[0]) if arguments else FOLDER
    write_reports(FOLDER / "show.jsonl", shown_reports())
    for name, command, output in (
        ("show", SHOW, printed_in_colour(SHOW, FOLDER / "show.jsonl")),
        ("resize", RESIZE, printed_plan()),
    ):
        path = folder / f"{name}.svg"
        path.write_text(draw_svg(command, output))
        print(f"{path}: {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
