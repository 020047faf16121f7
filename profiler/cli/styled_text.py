"""Lines of styled text for a terminal."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from profiler.cli.standard_streams import (
    STDOUT,
    encode_text,
    stdout_encoding,
    terminal_columns,
    text_as_encoded,
    without_ci_commands,
    write_out,
)
from profiler.core.text import (
    MAX_NAMED,
    beginning_of,
    columns_of,
    end_of,
    names_and_more,
    printable,
)

if TYPE_CHECKING:
    from textwrap import TextWrapper

INDENT = "  "
_UNLIMITED = 10_000
_MIN_ROOM = 20
# Textwrap does not wrap at this character, and printable() removes it from texts.
_NO_BREAK = "\N{NO-BREAK SPACE}"
# While textwrap counts characters, it follows one that takes two columns; printable() removes it.
FILLER = "\ue000"
_FIRST_SIGN = 0xF0000  # of a plane for private use, as the filler's: no printable text has it
# Compiled with the first line that is too long: most runs have none.
_BEFORE_UNIT = r"(?<=\d) (?=(?:[kMGT]?B|vCPU|ms|s)\b|%)"
RESET = "\x1b[0m"
_CODES: Mapping[str, str] = {
    "bold": "\x1b[1m",
    "dim": "\x1b[2m",
    "good": "\x1b[1;32m",
    "bad": "\x1b[1;31m",
    "warning": "\x1b[1;33m",
    "neutral": "\x1b[1;36m",
    "red": "\x1b[31m",
    "green": "\x1b[32m",
    "yellow": "\x1b[33m",
    "blue": "\x1b[94m",
    "magenta": "\x1b[35m",
    "cyan": "\x1b[36m",
    "pink": "\x1b[95m",
    "bright red": "\x1b[91m",
    "grey": "\x1b[90m",
}

# As in the report page: red is a failure, dark red a kill.
OUTCOME_STYLES: Mapping[str, str] = {
    "success": "green",
    "failure": "bright red",
    "out of memory": "red",
    "stopped": "grey",
    "unknown": "yellow",
}


class Span(Struct, frozen=True):
    """A text in one style; "" is the terminal's own style."""

    text: str
    style: str = ""


Line = tuple[Span, ...]
EMPTY: Line = ()


def build_line(*parts: str | Span) -> Line:
    """Build a line. Characters that a terminal would act on are escaped."""
    return tuple(span for span in printable_spans(parts) if span.text)


def printable_spans(parts: Iterable[str | Span]) -> Iterator[Span]:
    """The texts and spans as spans in which a terminal acts on no character."""
    for part in parts:
        if isinstance(part, str):
            yield Span(printable(part))
        else:
            yield Span(printable(part.text), part.style)


def displayed_columns(spans: Iterable[Span]) -> int:
    """The number of columns."""
    return sum(columns_of(span.text) for span in spans)


def room_after(first: Iterable[Span], width: int | None) -> int:
    """The columns of each line of a wrapped text that ``first`` begins: at least 20, also where
    ``width`` has fewer.
    """
    return max((width or _UNLIMITED) - displayed_columns(first), _MIN_ROOM)


def wrapped_lines(
    text: str, width: int | None, *first: str | Span, style: str = ""
) -> tuple[Line, ...]:
    """Wrap a text to lines of ``width``, None: one line.

    ``first`` begins the first line, and indents the others.
    """
    shown = text_as_encoded(printable(text), stdout_encoding())
    start = build_line(*first)
    indent = Span(" " * displayed_columns(start))
    room = room_after(start, width)
    if columns_of(shown) <= room:
        rows = [shown.rstrip(" ")] if shown.strip() else []
    else:
        from textwrap import TextWrapper  # slow to import, and most lines of a run's end fit

        joined = re.sub(_BEFORE_UNIT, _NO_BREAK, shown)
        rows = wrapped_rows(
            joined, TextWrapper(room, break_long_words=False, break_on_hyphens=False)
        )
    lines = []
    for row in rows:
        lines.append(build_line(*start, Span(row.replace(_NO_BREAK, " "), style)))
        start = (indent,)
    return tuple(lines)


def wrapped_rows(text: str, wrapper: "TextWrapper") -> list[str]:
    """Wrap a text in which some characters take two columns, and marks none."""
    letters: list[str] = []
    for character in text:
        if letters and not columns_of(character):
            letters[-1] += character
        else:
            letters.append(character)
    # The wrapper counts characters: a letter with marks becomes one, for the time.
    marked = [letter for letter in dict.fromkeys(letters) if len(letter) > 1]
    signs = {letter: chr(_FIRST_SIGN + number) for number, letter in enumerate(marked)}
    filled = "".join(
        signs.get(letter, letter) + FILLER * (columns_of(letter) - 1) for letter in letters
    )
    words = str.maketrans({FILLER: "", **{sign: letter for letter, sign in signs.items()}})
    return [row.translate(words) for row in wrapper.wrap(filled)]


def with_empty_lines_between(parts: Iterable[Iterable[Line]]) -> list[Line]:
    """The parts below each other, with an empty line between them; one without lines is left
    out.
    """
    lines: list[Line] = []
    for part in map(tuple, parts):
        if lines and part:
            lines.append(EMPTY)
        lines += part
    return lines


def sentences_about(named: Iterable[tuple[str, str, str]], width: int | None) -> Iterator[Line]:
    """Each sentence once, after its names, below an empty line; ``named``: name, sentence,
    style.
    """
    concerned: dict[tuple[str, str], list[str]] = {}
    for name, sentence, style in named:
        concerned.setdefault((sentence, style), []).append(name)
    if concerned:
        yield EMPTY
    for (sentence, style), names in concerned.items():
        named_first = names_and_more(names)
        yield from wrapped_lines(f"{named_first}: {sentence}", width, "- ", style=style)


def sentences_of_many(named: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Of families and sentences about them, those that many families have in common, each as it is
    said of all of them: with FAMILY for the name if it is all that differs.
    """
    pairs = [*dict.fromkeys(named)]
    of_any = {}
    for family, sentence in pairs:
        name = rf"(?<![\w-]){re.escape(family)}(?![\w-])"
        of_any[family, sentence] = re.sub(name, "FAMILY", sentence)
    equal = Counter(sentence for _, sentence in pairs)
    alike = Counter(of_any.values())
    shared = {}
    for family, sentence in pairs:
        if equal[sentence] > MAX_NAMED:
            shared[family, sentence] = sentence
        elif alike[of_any[family, sentence]] > MAX_NAMED:
            shared[family, sentence] = of_any[family, sentence]
    return shared


def cut_end(text: str, width: int) -> str:
    """Cut a text that is too long."""
    if columns_of(text) <= width:
        return text
    return beginning_of(text, max(width - 1, 0)) + "…"


def cut_line(spans: Line, width: int) -> Line:
    """A line that is too long, cut: a terminal that cuts it shows its end in the last column."""
    if displayed_columns(spans) <= width:
        return spans
    kept: list[Span] = []
    for span in spans:
        text = beginning_of(span.text, max(width - 1 - displayed_columns(kept), 0))
        kept.append(Span(text, span.style))
        if text != span.text:
            break
    return (*kept, Span("…"))


def cut_middle(text: str, width: int) -> str:
    """Cut the middle of a name that is too long: the names of a workflow's families begin alike."""
    if columns_of(text) <= width:
        return text
    end = end_of(text, 2 * width // 3)
    return cut_end(text, width - columns_of(end)) + end


def with_short_words(text: str, width: int) -> str:
    """A text with names in it, each of which is cut where a line has no room for it."""
    shown = text_as_encoded(printable(text), stdout_encoding())
    if columns_of(shown) <= width:
        return shown
    return " ".join(cut_middle(word, width) for word in shown.split(" "))


def render_lines(lines: Iterable[Sequence[Span]], *, is_coloured: bool, encoding: str) -> bytes:
    """Encode the lines, with or without colours."""
    rows = []
    for spans in lines:
        row = ""
        for span in spans:
            if is_coloured and span.style:
                row += f"{_CODES[span.style]}{span.text}{RESET}"
            else:
                row += span.text
        rows.append(without_ci_commands(row.rstrip()) + "\n")
    return encode_text("".join(rows), encoding)


def write_lines(lines: Iterable[Line], descriptor: int = STDOUT) -> None:
    """Write lines to standard output or standard error, with colours on a terminal.

    NO_COLOR and FORCE_COLOR count.
    """
    write_out(
        render_lines(lines, is_coloured=shows_colours(descriptor), encoding=stdout_encoding()),
        descriptor,
    )


def write_paragraph(sentence: str) -> None:
    """Write a sentence to standard output, below an empty line."""
    write_lines([EMPTY, *wrapped_lines(sentence, terminal_columns())])


def shows_colours(descriptor: int = STDOUT) -> bool:
    """Whether standard output, or standard error, takes colours."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (
        os.isatty(descriptor) and os.environ.get("TERM") != "dumb"
    )
