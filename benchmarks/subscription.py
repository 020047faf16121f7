"""What CloudWatch Logs hands to the forwarder, and an invocation's context, for measurements in this process."""

import base64
import gzip
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import requests

ROOT = Path(__file__).resolve().parent.parent
# The root of the forwarder's zip, as in AWS.
sys.path.insert(0, str(ROOT / "lambda"))

_TEMPLATES = ROOT / "kibana" / "index-templates"
_INVOCATION_SECONDS = 900


class Invocation:
    """The context of an invocation that has fifteen minutes."""

    def __init__(self) -> None:
        self._end = time.monotonic() + _INVOCATION_SECONDS

    def get_remaining_time_in_millis(self) -> int:
        return round((self._end - time.monotonic()) * 1000)


def forward_logs() -> Callable[[Mapping[str, Any], Invocation], Mapping[str, int]]:
    """The forwarder's handler. It reads its settings from the environment at its first event."""
    import handler  # noqa: PLC0415  from lambda/, which is on the path only now

    return handler.forward_logs


def event(lines: Sequence[str], *, stream: str, timestamp_ms: int) -> dict[str, Any]:
    """The event of a subscription: lines of one log stream."""
    events = [{"id": str(number), "timestamp": timestamp_ms, "message": text} for number, text in enumerate(lines)]
    document = {"messageType": "DATA_MESSAGE", "logGroup": "/ecs/jobs", "logStream": stream, "logEvents": events}
    return {"awslogs": {"data": base64.b64encode(gzip.compress(json.dumps(document).encode(), 6)).decode()}}


def install_templates(url: str, codec: str | None = None) -> None:
    """The product's index templates, without which a cluster guesses; with another codec if one is given."""
    for path in _TEMPLATES.glob("*.json"):
        template = json.loads(path.read_text())
        # Sizes are else ten seconds old.
        template["template"]["settings"]["index"]["store"] = {"stats_refresh_interval": "0s"}
        if codec is not None:
            template["template"]["settings"]["index"]["codec"] = codec
        answer = requests.put(f"{url}/_index_template/{path.stem}", json=template, timeout=30)
        answer.raise_for_status()
