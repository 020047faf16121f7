"""What to do about an index or a cluster that takes no document, by the cluster's own words."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from profiler.core.aws_signature import NO_SERVERLESS
from profiler.core.search_answers import FOREIGN, FOREIGN_REMEDY, balanced_zones, zones_remedy
from profiler.forwarder.search_cluster.bulk_client import OF_PIPELINE, ItemResult

_PRIVILEGES: Final = (
    "Give the forwarder's user the privileges index and auto_configure on the indices."
)
_BY_REASON: Final[Mapping[re.Pattern[str], str]] = {
    # Elasticsearch 8 says "shards", older servers and OpenSearch "total shards".
    re.compile(r"this action would add \[\d+\] (?:total )?shards"): (
        "Delete old indices, or raise cluster.max_shards_per_node."
    ),
    re.compile(r"index write \(api\)"): (
        "Run `task-profiler kibana import`, which opens what a lifecycle policy has closed."
    ),
    # OpenSearch Service makes no index where a node has too little disk space.
    re.compile(r"flood-stage watermark|create-index blocked"): (
        "Delete old indices, or add disk space: the search cluster then takes documents again."
    ),
    re.compile(r"allowed in data streams|ranges of currently writable indices"): (
        "An index template of others makes data streams of these names: run `task-profiler kibana "
        "import`, which names it."
    ),
    re.compile(rf"^(?:{OF_PIPELINE.pattern})", re.IGNORECASE): (
        "An ingest pipeline of the index fails (index.default_pipeline or index.final_pipeline): "
        "mend it, or take it off the index and its template."
    ),
    re.compile(r"document id is not supported", re.IGNORECASE): NO_SERVERLESS,
    # Of an index whose fields a server has guessed, or of somebody else's template.
    re.compile(
        r"limit of total fields|would have more than 1 type|dynamic introduction of \["
        r"|cannot be changed from type",
        re.IGNORECASE,
    ): f"The index {FOREIGN}: {FOREIGN_REMEDY}.",
}
# Each gets the index's name, which the engine's own words lack.
_BY_REASON_OF_INDEX: Final[Mapping[re.Pattern[str], str]] = {
    re.compile(r"^index_closed_exception\b"): (
        "Open the index {index}, or the one behind this alias: it is closed (POST {index}/_open)."
    ),
    re.compile(r"no write index is defined for alias"): (
        "Set is_write_index for one index of the alias {index}, or remove the alias."
    ),
    re.compile(r"index read-only \(api\)"): (
        "Set index.blocks.read_only of {index} to false: somebody has made it read-only."
    ),
}
_OTHER: Final = "Remove the block, limit or fault that the cluster names."


def remedy_sentence(refused: ItemResult, index: str) -> str:
    """The sentence for a document of this index that a later attempt can write."""
    reason = refused.reason or ""
    zones = balanced_zones(reason)
    if zones:
        return zones_remedy(zones)
    for pattern, sentence in _BY_REASON.items():
        if pattern.search(reason):
            return sentence
    for pattern, sentence in _BY_REASON_OF_INDEX.items():
        if pattern.search(reason):
            return sentence.format(index=index)
    is_without_rights = refused.status == HTTPStatus.UNAUTHORIZED
    if is_without_rights or refused.error == "security_exception":
        return _PRIVILEGES
    return _OTHER
