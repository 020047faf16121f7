"""Secrets of command lines that only a program's name announces: ``mysql -pX``, ``vault login X``.

One pass over the words of a text.
"""

import re
from collections.abc import Iterator, Mapping

from profiler.core.redaction.secret_names import SecretKind, secret_kind
from profiler.core.redaction.secret_programs import (
    LOGIN,
    NO_PROGRAM,
    ORACLE,
    PROGRAM_NAMES,
    PROGRAMS,
    SEPARATORS,
    SecretProgram,
)
from profiler.core.redaction.secret_values import is_harmless, value_span

_PUNCTUATION = "\"'[](),`\\"
# Also of a list in JSON: ["mysql","-pX"]
_WORD = r"""(?:[^\s,[]|[,\[](?!\\{0,8}["']))+"""
_BETWEEN = r"""\\{0,8}["']?(?:,?\s{1,8}|,(?=\\{0,8}["']))|$"""
_WITH_NUMBER = r"-\w?\d+"  # xargs -n1 mysql
_OPTION = r"""\\{0,8}["']?-{1,2}[A-Za-z]"""
# An argument that is an address, a folder, a share, a drive or a permission.
_ORDINARY = r"(?:\w+://|\\\\|/|\./|[A-Za-z]:$|[~+%&*<>].*$|\d?>|localhost\b)"
_OF_ORACLE = r"""["']?(?:userid=)?[\w$#]{1,30}/(?=[^\s/@]{1,60}(?:@|["']?$))"""
# An argument with a name of its own: vault login -method=oidc role=etl
_NAMED = r"[a-z_]{1,30}=[^=]"
_ADDRESS = r"[A-Za-z][A-Za-z\d+.-]{1,20}://"
_MAX_LETTERS = 9
_OPENED = r"""(?:--?[\w-]{1,40}=)?(["'])"""
_MAX_ARGUMENT = 4096
_COMMAND_END = r"[;|&\n]"
_MAX_BEHIND = 300  # characters
_MAX_WORDS = 64  # that say what the program does; a longer line is read in linear time
_LITERAL = "--from-literal"


class _Line:
    """The part of a command line that has been read."""

    def __init__(self) -> None:
        self.outer: _Line | None = None
        self.argument_end = 0
        self.begin(NO_PROGRAM)

    def begin(self, program: SecretProgram, name: str = "") -> None:
        self.program = program
        self.name = name
        self.seen: list[str] = []
        self.last = ""
        self.signs_in = False

    def add(self, word: str) -> None:
        self.last = word
        self.signs_in = self.signs_in or word == LOGIN
        if len(self.seen) < _MAX_WORDS:
            self.seen.append(word)

    def at(self, text: str, found: re.Match[str], ends: Mapping[int, int]) -> "_Line":
        """The line that a word is of. An argument of several words has its own: what separates
        commands there, as in "select 1; select 2", does not end the program.
        """
        line = self
        if line.outer is not None and found.start() >= line.argument_end:
            line = line.outer
        if line.outer is not None or line.program is NO_PROGRAM:
            return line
        end = _argument_end(text, found, ends)
        return _inner_line(line, end) if end > found.end() else line

    def has(self, words: tuple[str, ...] | None) -> bool:
        return words is not None and all(word in self.seen for word in words)


def _inner_line(outer: _Line, end: int) -> _Line:
    line = _Line()
    line.program, line.name, line.last = outer.program, outer.name, outer.last
    line.seen, line.signs_in = [*outer.seen], outer.signs_in
    line.outer, line.argument_end = outer, end
    return line


def secret_arguments(text: str, ends: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Start and end of each secret of a program's command line. ``ends``: where words that have
    spaces begin and end.
    """
    if not any(_base_name(word) in PROGRAM_NAMES for word in {*re.findall(_WORD, text)}):
        return
    line = _Line()
    place = previous_end = 0
    was_option = False
    for found in re.finditer(_WORD, text):
        line = line.at(text, found, ends)
        if "\n" in text[previous_end : found.start()]:
            line.begin(NO_PROGRAM)
        previous_end = found.end()
        if found.start() < place:  # the value of an option
            was_option = False
            continue
        word = found[0].strip(_PUNCTUATION) or found[0]
        is_option = word.startswith("-") and len(word) > 1
        # Of a text in quotes, also after an option.
        is_first = found[0][0] in "\"'" or found.start() in ends
        span = _secret_span(text, line, found, word, ends)
        if span:
            yield span
            place = span[1]
        if found[0] in SEPARATORS or found[0].endswith(";"):
            line.begin(NO_PROGRAM)
        elif not is_option and _base_name(word) in PROGRAMS and (not was_option or is_first):
            line.begin(PROGRAMS[_base_name(word)], _base_name(word))
        else:
            line.add(word)
        # A shell's -c is followed by a program, other options by a name that is none.
        is_alone = word in ("-c", "-lc", "-ec", "-m", "--") or re.fullmatch(_WITH_NUMBER, word)
        was_option = is_option and not is_alone


def _argument_end(text: str, found: re.Match[str], ends: Mapping[int, int]) -> int:
    """Where an argument that begins with a word ends: one in quotes may have several words."""
    if found.start() in ends:
        return ends[found.start()]
    opening = re.match(_OPENED, found[0])
    if opening is None:
        return found.end()
    begin = found.start() + opening.end()
    return text.find(opening[1], begin, begin + _MAX_ARGUMENT)


def _base_name(word: str) -> str:
    base = word.strip(_PUNCTUATION).rpartition("/")[2]
    return base if word.startswith("-") else base.rpartition("=")[2]


def _secret_span(
    text: str, line: _Line, found: re.Match[str], word: str, ends: Mapping[int, int]
) -> tuple[int, int] | None:
    if word.startswith(("-", "/")) or word in line.program.options:
        span = _option_secret(text, line, found, word, ends)
        if span or word.startswith("-"):
            return span
    elif line.has(line.program.assigned_after) and "=" in word:
        return _argument_span(text, found.start() + found[0].index("=") + 1, ends)
    if line.name in ORACLE:
        user = re.match(_OF_ORACLE, found[0])
        return _argument_span(text, found.start() + user.end(), ends, stop="@") if user else None
    if _is_argument(line, word):
        return _argument_span(text, found.start(), ends)
    if line.has(line.program.pairs_after) and not word.startswith(("-", "=")):
        kind = None if line.last.startswith("-") else secret_kind(line.last)
        if kind is not None and not is_harmless(word, kind, is_quoted=False, is_prose=False):
            return _argument_span(text, found.start(), ends)
    return None


def _is_argument(line: _Line, word: str) -> bool:
    """Whether a word without an option is a secret by its place."""
    for words, first in line.program.arguments.items():
        told = [one for one in line.seen if not one.startswith("-") or one in words]
        # Behind the values of options: mysqladmin -u root password X.
        places = range(len(told) - len(words) - first + 2)
        if not any(tuple(told[place : place + len(words)]) == words for place in places):
            continue
        if line.signs_in and re.match(_NAMED, word):
            return False
        return re.match(_ORDINARY, word) is None
    return False


def _option_secret(
    text: str, line: _Line, found: re.Match[str], word: str, ends: Mapping[int, int]
) -> tuple[int, int] | None:
    """The secret of an option, in the same word or the next one."""
    begin = found.start() + found[0].index(word)
    if line.has(line.program.assigned_after) and word.startswith(_LITERAL):
        signs = [place for place, sign in enumerate(word) if sign == "="]
        if signs and word.startswith(f"{_LITERAL}="):
            return _argument_span(text, begin + signs[1] + 1, ends) if len(signs) > 1 else None
        return None
    for option, needed in _secret_options(text, line, word, begin).items():
        if word == option or _is_combined(word, option, needed):
            between = re.compile(_BETWEEN).match(text, found.end())
            if between is None or re.compile(_OPTION).match(text, between.end()):
                return None
            return _argument_span(text, between.end(), ends, needed)
        length = _joined_length(word, option, line.program)
        if length:
            return _argument_span(text, begin + length, ends, needed)
    return None


def _secret_options(text: str, line: _Line, word: str, begin: int) -> Mapping[str, str]:
    """The options whose value is secret in this command. What stands behind the option counts,
    too, up to the end of the command.
    """
    options = line.program.options
    if line.program.asks and word in options:
        return {}
    if line.program.where and word.partition("=")[0] in options:
        behind = re.split(_COMMAND_END, text[begin : begin + _MAX_BEHIND], maxsplit=1)[0]
        command = " ".join((line.name, *line.seen, behind))
        return options if re.search(line.program.where, command) else {}
    return {"-p": "", **options} if line.signs_in else options


def _joined_length(word: str, option: str, program: SecretProgram) -> int:
    """The length of the option in a word that has its value, too; 0: it has none."""
    length = len(option)
    if not word.startswith(option) or len(word) == length:
        return 0
    if option.startswith("--"):
        return length + 1 if word[length] == "=" else 0
    is_short = len(option) == len("-p") or option.endswith(":")
    return length if program.is_joined and is_short else 0


def _is_combined(word: str, option: str, needed: str) -> bool:
    """Whether single letters end with an option: ``curl -su USER:PASSWORD``."""
    if len(option) != len("-u") or needed != ":" or not word[1:].isalpha():
        return False
    return len(word) <= _MAX_LETTERS and not word.startswith("--") and word.endswith(option[1])


def _argument_span(
    text: str, place: int, ends: Mapping[int, int], needed: str = "", stop: str = ""
) -> tuple[int, int] | None:
    start, end, is_quoted = value_span(text, place)
    if place in ends:
        start, end = place, ends[place]
    value = text[start:end]
    if stop and stop in value:
        end = start + value.index(stop)
    if start == end or needed not in value:
        return None
    if needed == ":" and re.match(_ADDRESS, value):
        return None  # the user is missing: curl -u https://h
    if len(needed) > 1:
        start += value.index(needed) + len(needed)
        value = text[start:end]
    if is_harmless(value, SecretKind.PASSWORD, is_quoted=is_quoted, is_prose=False):
        return None
    return start, end
