"""Conditions on documents, and their form in Kibana's query language (KQL)."""

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Is:
    """The field has this value."""

    field: str
    value: str | bool


@dataclass(frozen=True, slots=True)
class Compared:
    """The number in the field is greater (``>``) or less (``<``) than the limit."""

    field: str
    sign: Literal["<", ">"]
    limit: int


@dataclass(frozen=True, slots=True)
class Exists:
    """The field has a value."""

    field: str


@dataclass(frozen=True, slots=True)
class Not:
    """The condition does not hold."""

    condition: "Condition"


class AllOf(tuple["Condition", ...]):
    """All of the conditions hold."""

    __slots__ = ()


class AnyOf(tuple["Condition", ...]):
    """At least one condition holds."""

    __slots__ = ()


Condition: TypeAlias = Is | Compared | Exists | Not | AllOf | AnyOf


def kql(condition: Condition | None) -> str:  # noqa: PLR0911  one for each kind
    """The condition in Kibana's query language; an empty text for None."""
    match condition:
        case None:
            return ""
        case Is(field, bool(value)):
            return f"{field}: {str(value).lower()}"
        case Is(field, value):
            return f'{field}: "{value}"'
        case Compared(field, sign, limit):
            return f"{field} {sign} {limit}"
        case Exists(field):
            return f"{field}: *"
        case Not(inner):
            return f"not {_group(inner)}"
        case AllOf():
            return " and ".join(_group(inner) for inner in condition)
        case AnyOf():
            return " or ".join(_group(inner) for inner in condition)


def _group(condition: Condition) -> str:
    return f"({kql(condition)})" if isinstance(condition, AllOf | AnyOf) else kql(condition)


def kuery(condition: Condition | None) -> dict[str, str]:
    """The condition as a query of a saved object."""
    return {"query": kql(condition), "language": "kuery"}
