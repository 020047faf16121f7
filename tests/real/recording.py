"""What the agent answered at the metadata addresses of a task, with its ids replaced by names.

`make real RECORD=1` writes it to `tests/data/ecs-agent.json`, which the metadata endpoint of `tests/e2e` is compared with.
"""

import json
import re
from pathlib import Path
from typing import Any

import requests

from tests.real.control_plane import StartedTask
from tests.real.lab import Lab

RECORDING = Path(__file__).parents[1] / "data" / "ecs-agent.json"
_ADDRESS = "ECS_CONTAINER_METADATA_URI_V4="
_HEX = re.compile(r"[0-9a-f]{12,}")


def read_endpoint(lab: Lab, task: StartedTask, container_id: str) -> dict[str, Any]:
    """The documents of all paths of a container's metadata address, by their paths."""
    environment = lab.engine.api.call("GET", f"/containers/{container_id}/json")["Config"]["Env"]
    address = next(one.removeprefix(_ADDRESS) for one in environment if one.startswith(_ADDRESS))
    answers = {path: requests.get(f"{address}{path}", timeout=60) for path in ("", "/task", "/stats", "/task/stats")}
    documents = json.dumps({path: answer.json() for path, answer in answers.items()})
    return _named(documents, answers["/task"].json())


def _named(documents: str, task: dict[str, Any]) -> dict[str, Any]:
    """Replace what is different each night: Docker's ids by containers' names, all others by zeros."""
    for container in task["Containers"]:
        documents = documents.replace(container["DockerId"], f"id of {container['Name']}")
    named: dict[str, Any] = json.loads(_HEX.sub(lambda found: "0" * len(found[0]), documents))
    return named
