"""Events and the context of Lambda invocations, for measurements of the forwarder in this
process.
"""

import base64
import gzip
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import requests

from tools.fleet_record import ACCOUNT
from tools.waiting import LIMIT_SECONDS

ROOT = Path(__file__).resolve().parent.parent
# The folder that is the root of the forwarder's zip.
sys.path.insert(0, str(ROOT / "lambda"))

_TEMPLATES = ROOT / "kibana" / "index-templates"
_INVOCATION_SECONDS = 900
LOG_GROUP = "/ecs/jobs"


class Invocation:
    """The context of an invocation with a timeout of fifteen minutes."""

    def __init__(self) -> None:
        self._end = time.monotonic() + _INVOCATION_SECONDS

    def get_remaining_time_in_millis(self) -> int:
        return round((self._end - time.monotonic()) * 1000)


def load_handler() -> Callable[[Mapping[str, Any], Invocation], Mapping[str, object]]:
    """Import the forwarder's handler, as a new process would.

    It reads its settings from the environment at its first event, and keeps them.
    """
    sys.modules.pop("handler", None)
    import handler

    return handler.forward_logs


def own_stream(line: str) -> str:
    """The log stream of a report's task."""
    record = json.loads(line)["record"]
    return f"ecs/{record['container']['name']}/{record['taskId']}"


def written_ms(line: str) -> int:
    """The time of a report, in milliseconds since 1970."""
    return round(datetime.fromisoformat(json.loads(line)["time"]).timestamp() * 1000)


def subscription_event(lines: Sequence[str], *, stream: str, timestamp_ms: int) -> dict[str, Any]:
    """The event that a subscription filter sends for these lines of a log stream."""
    events = [
        {"id": str(number), "timestamp": timestamp_ms, "message": text}
        for number, text in enumerate(lines)
    ]
    document = {"owner": ACCOUNT, "logGroup": LOG_GROUP, "logStream": stream, "logEvents": events}
    return {
        "awslogs": {
            "data": base64.b64encode(gzip.compress(json.dumps(document).encode(), 6)).decode()
        }
    }


def kinesis_event(lines: Sequence[str], *, timestamp_ms: int) -> dict[str, Any]:
    """The event of a Kinesis data stream: each record is a payload of one line, because each run
    has its own stream.
    """
    streams = [own_stream(line) for line in lines]
    payloads = (subscription_event([line], stream=stream, timestamp_ms=timestamp_ms)
                for stream, line in zip(streams, lines, strict=True))  # fmt: skip
    return {
        "Records": [
            {
                "kinesis": {
                    "kinesisSchemaVersion": "1.0",
                    "partitionKey": streams[number],
                    "sequenceNumber": f"{number:056d}",
                    "data": payload["awslogs"]["data"],
                    "approximateArrivalTimestamp": timestamp_ms / 1000,
                },
                "eventSource": "aws:kinesis",
                "eventID": f"shardId-000000000000:{number:056d}",
                "eventSourceARN": "arn:aws:kinesis:us-east-1:111122223333:stream/reports",
            }
            for number, payload in enumerate(payloads)
        ]
    }


def install_templates(url: str, codec: str | None = None) -> None:
    """Install the index templates, optionally with another codec."""
    for path in _TEMPLATES.glob("*.json"):
        template = json.loads(path.read_text())
        # By default, sizes can be ten seconds old.
        template["template"]["settings"]["index"]["store"] = {"stats_refresh_interval": "0s"}
        if codec is not None:
            template["template"]["settings"]["index"]["codec"] = codec
        response = requests.put(
            f"{url}/_index_template/{path.stem}", json=template, timeout=LIMIT_SECONDS
        )
        response.raise_for_status()
