"""Whether the answer of a search cluster is whole.

Both engines answer HTTP 200 with a part of the documents if an index is lost, and if a search was
ended early: by ``search.default_search_timeout``, or by a number of documents.
https://www.elastic.co/guide/en/elasticsearch/reference/8.19/search-search.html
"""

from collections.abc import Mapping

from profiler.core.json_fields import field_at, integer

_TIMED_OUT = "the search cluster ran out of time in a search (timed_out)"
_TERMINATED = "the search cluster ended a search early (terminated_early)"


def missing_shards(answer: Mapping[str, object]) -> int:
    """The number of shards without an answer.

    OpenSearch does not count those without a node as failed. Skipped ones are successful.
    """
    total = integer(field_at(answer, "_shards.total"))
    successful = integer(field_at(answer, "_shards.successful"))
    if total is None or successful is None:
        return 0
    return max(total - successful, 0)


def why_partial(answer: Mapping[str, object]) -> str | None:
    """Why documents are missing in an answer, without the runs that they are; None: it is whole."""
    shards = missing_shards(answer)
    if shards:
        counted = "1 shard" if shards == 1 else f"{shards} shards"
        return f"{counted} of the search cluster did not answer"
    if answer.get("timed_out") is True:
        return _TIMED_OUT
    if answer.get("terminated_early") is True:
        return _TERMINATED
    return None
