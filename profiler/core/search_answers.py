"""Whether the answer of a search cluster is whole, and what a refusal names.

Both engines answer HTTP 200 with a part of the documents if an index is lost, and if a search was
ended early: by ``search.default_search_timeout``, or by a number of documents.
https://www.elastic.co/guide/en/elasticsearch/reference/8.19/search-search.html
"""

import re
from collections.abc import Mapping
from typing import Final

from profiler.core.json_fields import (
    field_at,
    integer_or_none,
    mapping_or_empty,
    mappings_in_list,
    text_or_none,
)
from profiler.core.optional_math import excess

# A pattern also finds closed indices, which are an error then; else they are left out in silence.
WITH_CLOSED: Final = "ignore_unavailable=false&allow_no_indices=true&expand_wildcards=open,closed"
WITHOUT_CLOSED: Final = "ignore_unavailable=true&allow_no_indices=true"

_TIMED_OUT = "the search cluster ran out of time in a search (timed_out)"
_TERMINATED = "the search cluster ended a search early (terminated_early)"

FOREIGN: Final = "was made without the index templates"
FOREIGN_REMEDY: Final = (
    "run task-profiler kibana import, reindex it into an index with the same prefix, and delete it"
)
# Of a field that the templates map as a keyword, and a server that guesses as a text.
_OF_TEXT = re.compile(r"text fields are not optimi[sz]ed|fielddata is disabled", re.IGNORECASE)
_ZONES = re.compile(r"multiple of total awareness attributes \[(\d+)\]")


def missing_shards(answer: Mapping[str, object]) -> int:
    """The number of shards without an answer.

    OpenSearch does not count those without a node as failed. Skipped ones are successful.
    """
    total = integer_or_none(field_at(answer, "_shards.total"))
    successful = integer_or_none(field_at(answer, "_shards.successful"))
    return excess(total, successful) or 0


def why_partial(answer: Mapping[str, object]) -> str | None:
    """Why documents are missing in an answer, without the runs that they are; None: it is whole."""
    shards = missing_shards(answer)
    if shards:
        counted = "1 shard" if shards == 1 else f"{shards} shards"
        return f"{counted} of the search cluster did not answer{_first_failure(answer)}"
    if answer.get("timed_out") is True:
        return _TIMED_OUT
    if answer.get("terminated_early") is True:
        return _TERMINATED
    return None


def part_remedy(why: str) -> str:
    """What to do about a part, by what ``why_partial`` says of it."""
    if FOREIGN in why:
        return FOREIGN_REMEDY
    return "check the health of its indices"


def _first_failure(answer: Mapping[str, object]) -> str:
    """The index and the error of a shard that failed; empty for one without a node.

    An index without the templates' mapping fails where it is to be sorted by a text.
    """
    failure = next(mappings_in_list(field_at(answer, "_shards.failures")), {})
    index, error = (
        text_or_none(failure.get("index")),
        text_or_none(field_at(failure, "reason.type")),
    )
    if not (text_or_none(failure.get("node")) and index and error):
        return ""
    if _OF_TEXT.search(text_or_none(field_at(failure, "reason.reason")) or ""):
        return f" ({index} {FOREIGN})"
    return f" ({index}: {error})"


def balanced_zones(reason: str) -> int | None:
    """The number of zones because of which OpenSearch refuses an index or a template: with balanced
    zones, the copies of an index must be a multiple of them. None for another refusal.

    https://github.com/opensearch-project/OpenSearch/issues/8205
    """
    found = _ZONES.search(reason)
    return int(found[1]) if found else None


def zones_remedy(zones: int) -> str:
    """The sentence about a cluster whose default number of replicas does not fit its zones."""
    return (
        f"Its zones need {zones} copies of each index: set cluster.default_number_of_replicas to "
        f"{zones - 1}."
    )


def closed_index(answer: Mapping[str, object]) -> str | None:
    """The closed index because of which a search was refused; None for another answer."""
    causes = mappings_in_list(field_at(answer, "error.root_cause"))
    cause = next(causes, mapping_or_empty(answer.get("error")))
    return (
        text_or_none(cause.get("index")) if cause.get("type") == "index_closed_exception" else None
    )


def closed_indices(answer: Mapping[str, object]) -> tuple[str, ...]:
    """The closed ones in the answer to ``_resolve/index`` with ``expand_wildcards=all``."""
    listed = mappings_in_list(answer.get("indices"))
    return tuple(str(index.get("name")) for index in listed if _is_closed(index))


def _is_closed(index: Mapping[str, object]) -> bool:
    attributes = index.get("attributes")
    return isinstance(attributes, list) and "closed" in attributes
