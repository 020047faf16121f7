"""Text from other programs, without the characters that cannot be written or that control a
terminal.
"""

from collections.abc import Iterable, Sequence

from profiler.core.optional_math import known_values

_MAX_NAMES = 5
# A sentence about more families or runs names these, and counts the others.
MAX_NAMED = 3
# Signs of our own texts, of one column each: Python's table of characters takes 0.2 ms to load.
NARROW_SIGNS = "·×±…→≈≥●▔▁▂▃▄▅▆▇█░▒▓"
# Unicode's categories of what is drawn on the character before; also the choice of its picture.
_MARKS = ("Mn", "Me")
# Of Python's escapes of a character, with the backslash.
_ESCAPE_LENGTHS = {"x": 4, "u": 6, "U": 10}
_MAX_ESCAPE_LENGTH = 10
# Two regional indicators are a flag. A tone changes the picture before it.
_INDICATORS = range(0x1F1E6, 0x1F200)
_TONES = range(0x1F3FB, 0x1F400)
_WITHOUT_SIGNS = str.maketrans("", "", NARROW_SIGNS)


def without_surrogates(text: str, replacement: str = "?") -> str:
    """Replace lone surrogates, which UTF-8 cannot encode: bytes that were not UTF-8, or half of
    a pair.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join(
            replacement if "\ud800" <= character <= "\udfff" else character for character in text
        )
    return text


def printable(text: str) -> str:
    r"""Replace control characters, and characters that change the direction of writing, by
    ``\x1b`` and the like.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def columns_of(text: str) -> int:
    """The columns that a printable text takes on a terminal: some characters take two, and a mark
    that stands on the letter before it none.
    """
    if text.isascii() or text.translate(_WITHOUT_SIGNS).isascii():
        return len(text)
    import unicodedata  # most texts do without

    columns = 0
    for character in text:
        if unicodedata.category(character) not in _MARKS:
            columns += 1 + (unicodedata.east_asian_width(character) in "WF")
    return columns


def beginning_of(text: str, columns: int) -> str:
    """The longest beginning that takes at most so many columns. A mark stays with its letter, and
    a picture of several characters and what `printable` writes for a character are whole or not
    there.
    """
    left = columns
    for place, character in enumerate(text):
        left -= columns_of(character)
        if left < 0:
            return text[: _undivided_place(text, place)]
    return text


def _undivided_place(text: str, place: int) -> int:
    """The place, or that of the escape or the picture that a cut there would divide."""
    return _before_escape(text, _before_picture(text, place))


def _before_picture(text: str, place: int) -> int:
    """The place, or that of the letter or the picture to which the character there belongs."""
    start = place
    while 0 < start < len(text) and _belongs_to_what_is_before(text[start]):
        start -= 1
    indicators = 0
    if text[start : start + 1] and ord(text[start]) in _INDICATORS:
        while indicators < start and ord(text[start - indicators - 1]) in _INDICATORS:
            indicators += 1
    return start - indicators % 2


def _belongs_to_what_is_before(character: str) -> bool:
    return not columns_of(character) or ord(character) in _TONES


def _before_escape(text: str, place: int) -> int:
    """The place, or that of the escape of a character that a cut there would divide."""
    start = text.rfind("\\", max(place - _MAX_ESCAPE_LENGTH + 1, 0), place)
    if start < 0:
        return place
    end = start + _ESCAPE_LENGTHS.get(text[start + 1 : start + 2], 0)
    digits = text[start + 2 : end]
    is_escape = end > place and all(digit in "0123456789abcdef" for digit in digits)
    return start if is_escape else place


def first_whole_letters(text: str, length: int) -> str:
    """The first so many characters of a text, without a letter whose marks are cut off, and
    without a part of a picture of several characters.
    """
    end = _before_picture(text, length)
    return text[: end or length]  # marks without a letter are cut anywhere


def end_of(text: str, columns: int) -> str:
    """The longest end that takes at most so many columns and begins as `beginning_of` may end."""
    left = columns
    start = len(text)
    for place in reversed(range(len(text))):
        left -= columns_of(text[place])
        if left < 0:
            break
        start = place
    while start < len(text) and (
        _belongs_to_what_is_before(text[start]) or _undivided_place(text, start) != start
    ):
        start += 1
    return text[start:]


def on_one_line(text: str) -> str:
    """Replace lone surrogates, and replace characters that cannot be printed with spaces."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " for char in without_surrogates(text))


def words_if_known(words: str, value: object) -> str:
    """The words about a value, in the place of ``{}``; none about an unknown one (None)."""
    return "" if value is None else words.format(value)


def first_names(names: Sequence[str]) -> str:
    """The first five names, and an ellipsis if there are more."""
    more = ["…"] if len(names) > _MAX_NAMES else []
    return ", ".join([*names[:_MAX_NAMES], *more])


def shown_of(count: int, most: int = MAX_NAMED) -> int:
    """How many of ``count`` names are shown where ``most`` are: one more if it would be the only
    one that is left out, because its name says more than "1 more".
    """
    return count if count <= most + 1 else most


def names_and_more(names: Sequence[str]) -> str:
    """``a, b, c`` before a colon, or the first names, and how many more there are."""
    is_whole = shown_of(len(names)) == len(names)
    return ", ".join(names) if is_whole else listed_and_more(names)


def listed_and_more(names: Sequence[str], most: int = MAX_NAMED) -> str:
    """``a, b and c``, or the first ``most`` names, and how many more there are."""
    shown = shown_of(len(names), most)
    if shown == len(names):
        return listed(names)
    return f"{', '.join(names[:shown])} and {len(names) - shown:,} more"


def listed(texts: Iterable[str], word: str = "and") -> str:
    """``a, b and c``; "" of nothing."""
    *first, last = tuple(texts) or ("",)
    return f"{', '.join(first)} {word} {last}" if first else last


def split_names(text: str) -> tuple[str, ...]:
    """The names of a list that is separated by commas, without spaces around them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def similar_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that is probably meant by a name; None if none is near."""
    from profiler.core.similar_names import near_name  # only after an error

    return near_name(name, known)


def did_you_mean(names: Iterable[str], known: Iterable[str]) -> str:
    """A sentence with the names that may be meant, after a space; "" without a similar one."""
    listed_known = list(known)
    similar = [similar_name(name, listed_known) for name in names]
    meant = known_values(dict.fromkeys(similar))
    return f" Did you mean {listed(meant)}?" if meant else ""


def as_sentence(text: str) -> str:
    """``text`` with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def install_hint(packages: str) -> str:
    """How to add packages to an installation: pip does not reach the environment that pipx has
    made.
    """
    return f"pip install {packages} (with pipx: pipx inject task-profiler {packages})"
