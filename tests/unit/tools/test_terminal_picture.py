"""The README's picture of the terminal is what the command prints today for the recorded runs."""

import re

from tools.terminal_picture import PICTURE, RUNS, draw, printed


def test_the_picture_is_the_commands_output() -> None:
    assert PICTURE.read_text() == draw(printed(RUNS)), "run python -m tools.terminal_picture"


def test_the_picture_loads_nothing_and_runs_nothing() -> None:
    picture = PICTURE.read_text()
    assert set(re.findall(r"https?://[^\"<) ]+", picture)) == {"http://www.w3.org/2000/svg"}
    assert "<script" not in picture
