"""Which part of a search cluster did not answer.

Both engines answer a search over a lost index with HTTP 200 and the documents of the others.
https://www.elastic.co/guide/en/elasticsearch/reference/8.19/search-search.html
"""

from collections.abc import Mapping

from profiler.core.json_fields import field_at, integer


def missing_shards(answer: Mapping[str, object]) -> int:
    """The number of shards without an answer.

    OpenSearch does not count those without a node as failed. Skipped ones are successful.
    """
    total = integer(field_at(answer, "_shards.total"))
    successful = integer(field_at(answer, "_shards.successful"))
    if total is None or successful is None:
        return 0
    return max(total - successful, 0)
