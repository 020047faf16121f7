"""Which known name a wrong one may mean."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

# How many names are looked at, and how similar they are at least: "run" and "rnu" are by 0.67.
_MOST_SIMILAR = 20
_LEAST_RATIO = 0.5
_LEAST_BEGINNING = 3


def near_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that is probably meant by a name, in letters of any case; None if none is
    near: if neither is the other one misspelled, nor has the words, or the beginning, of the other.
    """
    return next((one for one in _most_similar(name, known) if _is_near(name, one)), None)


def correct_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that a name misspells; None if there is none."""
    return next((one for one in _most_similar(name, known) if _is_misspelled(name, one)), None)


def _most_similar(name: str, known: Iterable[str]) -> list[str]:
    """Some of the known names, the most similar one first, by the ratio of ``difflib``, which is
    high for all names with a long beginning in common.
    """
    names = {one.lower(): one for one in known}
    similar = get_close_matches(name.lower(), list(names), n=_MOST_SIMILAR, cutoff=_LEAST_RATIO)
    return [names[one] for one in similar]


def _is_near(name: str, known: str) -> bool:
    words, known_words = (set(re.findall(r"[^\W_]+", one.lower())) for one in (name, known))
    has_words = words <= known_words or known_words <= words
    shorter, longer = sorted((name.lower(), known.lower()), key=len)
    is_beginning = len(shorter) >= _LEAST_BEGINNING and longer.startswith(shorter)
    return has_words or is_beginning or _is_misspelled(name, known)


def _is_misspelled(name: str, known: str) -> bool:
    """Whether up to one letter of about four is too much, missing, another one, or in turns with
    the next.
    """
    most = (len(name) + 1) // 4
    return _count_mistakes(name.lower(), known.lower()) <= most


def _count_mistakes(name: str, known: str) -> int:
    """How many letters to put in, leave out, replace, or exchange with the next one (the optimal
    string alignment distance).
    """
    before: list[int] = []
    last = list(range(len(known) + 1))
    for row, letter in enumerate(name, 1):
        current = [row]
        for column, other in enumerate(known, 1):
            count = min(last[column] + 1, current[-1] + 1, last[column - 1] + (letter != other))
            is_exchanged = (
                row > 1 and column > 1 and (letter, name[row - 2]) == (known[column - 2], other)
            )
            current.append(min(count, before[column - 2] + 1) if is_exchanged else count)
        before, last = last, current
    return last[-1]
