"""A run that is read from a document of a search index."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.record.record_model import Cost, Recommendation, Report, decode, encode
from profiler.runs.past_runs.search_documents import run_of_document
from tests import shown_runs

ETL = shown_runs.etl()
ABSURD = replace(
    ETL,
    record=replace(
        ETL.record,
        cost=Cost(usd=1e9),
        recommendation=Recommendation(vcpu=1, memory_mb=2048, saving_percent=150),
    ),
)


def document(report: Report, record: str | None) -> dict[str, Any]:
    record_fields = {} if record is None else {"record": record}
    return {
        "@timestamp": report.time,
        "event": {"dataset": "task.report"},
        "cost": {"usd": report.record.cost.usd},
        "recommendation": {"saving_percent": report.record.recommendation.saving_percent},
        **record_fields,
    }


@pytest.mark.parametrize("stored", ["line", "record", "fields"])
def test_what_cannot_be_is_missing_however_a_document_has_it(stored: str) -> None:
    """A cost beyond any run's and a saving of more than all: as in the line itself."""
    line = encode(ABSURD).decode()
    texts = {"line": line, "record": json.dumps(json.loads(line)["record"]), "fields": None}
    expected = decode(line).record
    record = run_of_document(document(ABSURD, texts[stored])).report.record
    assert record.cost.usd is None is expected.cost.usd
    assert record.recommendation.saving_percent is None is expected.recommendation.saving_percent
