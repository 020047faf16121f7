"""The rows at the bottom, on a small model of a terminal."""

import re
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from profiler.local_run.terminal_rows import GREEN, BottomRows, Row, Terminal

TOKEN = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])|\x1b([78D])|([\r\n])|([^\x1b\r\n])")
ROWS: tuple[Row, ...] = ((("first", ""),), (("second", GREEN),))


class Screen:
    """What a terminal does with the codes that are used here. A line feed goes to the first column."""

    def __init__(self, columns: int = 40, rows: int = 10) -> None:
        self.columns, self.rows = columns, rows
        self.lines = [" " * self.columns for _ in range(self.rows)]
        self.region = 0, self.rows - 1
        self.row = self.column = 0  # a column after the last one: the next character wraps
        self.saved = 0, 0

    def resize(self, rows: int) -> None:
        """The last row stays the last one if the cursor needs it, as in most terminals."""
        lost = max(self.row + 1 - rows, 0)
        self.lines = (self.lines[lost:] + [" " * self.columns] * rows)[:rows]
        self.row, self.rows, self.region = self.row - lost, rows, (0, rows - 1)

    def write(self, text: str) -> None:
        for numbers, code, short, control, character in TOKEN.findall(text):
            if character:
                self.put(character)
            elif control:
                self.column = 0
                if control == "\n":
                    self.index()
            elif short == "7":
                self.saved = self.row, self.column
            elif short == "8":
                self.row, self.column = self.saved
            elif short:
                self.index()
            else:
                self.control(code, [int(number or 0) for number in numbers.split(";")])

    def put(self, character: str) -> None:
        if self.column == self.columns:
            self.column = 0
            self.index()
        line = self.lines[self.row]
        self.lines[self.row] = line[: self.column] + character + line[self.column + 1 :]
        self.column += 1

    def index(self) -> None:
        top, bottom = self.region
        if self.row == bottom:
            self.lines[top : bottom + 1] = [*self.lines[top + 1 : bottom + 1], " " * self.columns]
        else:
            self.row = min(self.row + 1, self.rows - 1)

    def control(self, code: str, numbers: list[int]) -> None:
        if code == "r":
            self.region = (numbers[0] - 1, numbers[1] - 1) if numbers[0] else (0, self.rows - 1)
            self.row = self.column = 0
        elif code == "H":
            self.row, self.column = numbers[0] - 1, numbers[1] - 1
        elif code == "A":
            self.row = max(self.row - numbers[0], 0)
        elif code == "K":
            self.lines[self.row] = " " * self.columns
        elif code == "J":
            self.lines[self.row] = self.lines[self.row][: self.column].ljust(self.columns)
            self.lines[self.row + 1 :] = [" " * self.columns] * (self.rows - self.row - 1)
        else:
            assert code == "m"

    @property
    def text(self) -> list[str]:
        return [line.rstrip() for line in self.lines]

    @property
    def rows_here(self) -> BottomRows:
        return BottomRows(lambda: Terminal(columns=self.columns, rows=self.rows), self.write, is_coloured=True)


def draw(rows: BottomRows, shown: Sequence[Row] = ROWS) -> None:
    rows.draw(lambda _: shown)


def test_the_rows_are_below_the_output_which_goes_on_where_it_was() -> None:
    screen = Screen()
    rows = screen.rows_here
    screen.write("one\nPassword: ")
    draw(rows)
    screen.write("secret\n")
    draw(rows)
    assert screen.text == ["one", "Password: secret", *[""] * 6, "first", "second"]
    rows.close()
    assert screen.text == ["one", "Password: secret", *[""] * 8]
    assert (screen.row, screen.column, screen.region) == (2, 0, (0, 9))


def test_a_resized_terminal_keeps_no_old_rows() -> None:
    for rows_now in (7, 9, 14):
        screen = Screen()
        rows = screen.rows_here
        screen.write("one\ntwo")
        draw(rows)
        screen.resize(rows_now)
        draw(rows)
        assert screen.text == ["one", "two", *[""] * (rows_now - 4), "first", "second"]
        screen.resize(8)
        rows.close()
        assert screen.text == ["one", "two", *[""] * 6]
        assert (screen.row, screen.column, screen.region) == (1, 3, (0, 7))


WRITES = st.lists(st.sampled_from(["a", "word ", "x" * 7, "\n", "\r", "line\n"]), max_size=40)


@given(WRITES, st.integers(30, 50), st.integers(6, 12), st.integers(1, 4))
def test_any_output_is_as_on_a_smaller_screen(writes: list[str], columns: int, height: int, count: int) -> None:
    screen, smaller = Screen(columns, height), Screen(columns, height - count)
    rows = screen.rows_here
    draw(rows, [(("row", ""),)] * count)
    for written in writes:
        screen.write(written)
        smaller.write(written)
        if screen.column < columns:  # else the terminal forgets now and then to wrap
            draw(rows, [(("row", ""),)] * count)
    rows.close()
    assert screen.text == smaller.text + [""] * count
    assert (screen.row, screen.column) == (smaller.row, smaller.column)


def test_a_terminal_that_is_too_small_shows_nothing_and_keeps_nothing() -> None:
    size, written = Terminal(columns=80, rows=5), list[str]()
    rows = BottomRows(lambda: size, written.append, is_coloured=True)
    draw(rows)
    assert written == []
    size = Terminal(columns=80, rows=24)
    draw(rows)
    size = Terminal(columns=29, rows=24)
    draw(rows)
    assert "\x1b[r" in written[-1]
    assert "first" not in written[-1]
