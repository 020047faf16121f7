"""Draw the README's picture of the terminal: what `task-profiler show` prints for docs/images/show.jsonl, as SVG.

    python -m tools.terminal_picture [FILE]

Both runs are real: a small batch in a control group of 512 MiB, once with less memory than that and once with more.
"""

import io
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "docs" / "images" / "show.jsonl"
PICTURE = ROOT / "docs" / "images" / "show.svg"
COMMAND = "task-profiler show nightly-etl"
COLUMNS = 80
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
     aria-label="Output of task-profiler show">
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


def printed(runs: Path) -> str:
    """Return what the command prints on a terminal of 80 columns, in colour."""
    command = (sys.executable, "-m", "profiler", "show", "nightly-etl", "--from", str(runs))
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "PYTHONUTF8": "1", "TZ": "UTC"}
    environment.pop("NO_COLOR", None)
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


def draw(output: str) -> str:
    """Draw the output of a terminal as SVG."""
    console = Console(width=COLUMNS, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(output.rstrip("\n")), soft_wrap=True)
    console.line()  # space below the last line
    picture = console.export_svg(title=COMMAND, theme=_THEME, code_format=_FORMAT, unique_id="show")
    return "".join(f"{row.rstrip()}\n" for row in picture.splitlines() if row.strip())


def main(arguments: Sequence[str]) -> None:
    """Write the picture."""
    path = Path(arguments[0]) if arguments else PICTURE
    path.write_text(draw(printed(RUNS)))
    print(f"{path}: {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
