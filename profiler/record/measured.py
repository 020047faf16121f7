"""A number of a run with what is known of it: all, the least, or nothing.

It is decided where the number is measured or read. Outputs print it with ``text``,
``sentence_words`` or ``maximum_words``, and need no other field. The bounds of a slowdown have
their own type in the record.
"""

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from profiler.record.units import APPROXIMATELY

Number = int | float
_MARK: Final = "≥"
_Format = Callable[[float], str]


class Exactly(Struct, frozen=True):
    """A number that was counted, or measured to the end."""

    value: Number

    def text(self, as_text: _Format) -> str:
        """The number in a list or a table: ``512 MB``."""
        return as_text(self.value)

    def sentence_words(self, as_text: _Format) -> str:
        """The number within a sentence."""
        return as_text(self.value)

    def maximum_words(self, as_text: _Format) -> str:
        """The largest of several numbers within a sentence: ``up to 512 MB``."""
        return f"up to {as_text(self.value)}"


class AtLeast(Struct, frozen=True):
    """A number that may have been larger: a part of the run was not seen, or AWS does not say the
    price.
    """

    value: Number

    def text(self, as_text: _Format) -> str:
        """The number with its mark: ``≥512 MB``, and of money ``≥ $0.12``."""
        shown = as_text(self.value)
        if shown.startswith("$"):
            return f"{_MARK} {shown}"
        return f"{_MARK}{shown}"

    def sentence_words(self, as_text: _Format) -> str:
        """The number within a sentence: ``at least 512 MB``."""
        return f"at least {as_text(self.value)}"

    def maximum_words(self, as_text: _Format) -> str:
        """The largest of several numbers within a sentence: ``up to 512 MB or more``."""
        return f"up to {as_text(self.value)} or more"


class Approximately(Struct, frozen=True):
    """A number that was estimated: it may have been smaller or larger."""

    value: Number

    def text(self, as_text: _Format) -> str:
        """The number with its mark: ``≈ 16 %``."""
        return f"{APPROXIMATELY}{as_text(self.value)}"

    def sentence_words(self, as_text: _Format) -> str:
        """The number within a sentence: ``about 16 %``."""
        return f"about {as_text(self.value)}"

    def maximum_words(self, as_text: _Format) -> str:
        """The largest of several such numbers: ``up to about 16 %``."""
        return f"up to about {as_text(self.value)}"


class Unknown(Struct, frozen=True):
    """A number that was not measured: its text is empty."""

    value: None = None

    def text(self, as_text: _Format) -> str:  # noqa: ARG002
        """Empty: a list leaves it out."""
        return ""

    def sentence_words(self, as_text: _Format) -> str:  # noqa: ARG002
        """Empty: a sentence leaves it out."""
        return ""

    def maximum_words(self, as_text: _Format) -> str:  # noqa: ARG002
        """Empty: a sentence leaves it out."""
        return ""


UNKNOWN: Final = Unknown()
Known = Exactly | AtLeast | Approximately
Measured = Known | Unknown


def measured_from(
    value: Number | None, *, is_least: bool = False, is_estimate: bool = False
) -> Measured:
    """A number as the record or a document has it; ``is_least``: it may have been larger;
    ``is_estimate``: also smaller.
    """
    if value is None:
        return UNKNOWN
    if is_estimate:
        return Approximately(value)
    if is_least:
        return AtLeast(value)
    return Exactly(value)


def scaled_number(number: Measured, factor: float) -> Measured:
    """The number, multiplied."""
    if isinstance(number, Unknown):
        return UNKNOWN
    return replace(number, value=number.value * factor)


def known_numbers(numbers: Iterable[Measured]) -> list[Known]:
    """The numbers that are known."""
    return [number for number in numbers if not isinstance(number, Unknown)]


def total_of_known(numbers: Iterable[Measured]) -> Measured:
    """The sum of the known numbers; at least that, if one of them may have been larger, and an
    estimate, if one is.
    """
    known = known_numbers(numbers)
    if not known:
        return UNKNOWN
    is_least = any(isinstance(number, AtLeast) for number in known)
    is_estimate = any(isinstance(number, Approximately) for number in known)
    value = sum(number.value for number in known)
    return measured_from(value, is_least=is_least, is_estimate=is_estimate)
