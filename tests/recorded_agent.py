"""What the real ECS agent answered in a night of `make real`, and what a double's answers have
to share with it.
"""

import json
import re
from pathlib import Path
from typing import Any

import requests

from tools.waiting import LIMIT_SECONDS

RECORDING = Path(__file__).parent / "data" / "ecs-agent.json"
_ROOT = Path(__file__).parents[1]
_STRING = re.compile(r'"[^"]*"')
# The address of that night's AWS, and the image's labels, which only a restarted agent adds.
_LEFT_OUT = re.compile(r'"awslogs-endpoint": "[^"]*", |, "org\.opencontainers[^"]*": "[^"]*"')
_ID = re.compile(r"[0-9a-f]{12,}")


def recorded_answers() -> dict[str, Any]:
    """The documents of a batch's metadata address by their paths, of the running task and of the
    ended one.
    """
    recorded: dict[str, Any] = json.loads(RECORDING.read_text())
    return recorded


def read_answers(address: str) -> dict[str, Any]:
    """The documents of all paths of a metadata address; names take the place of Docker's ids,
    zeros that of others.
    """
    return _with_names(_documents(address))


def complete_answers(address: str) -> dict[str, Any] | None:
    """The same documents when there are statistics of each container; None before.

    Until the agent knows a task, it answers with the text of an error.
    """
    documents = _documents(address)
    if not isinstance(documents["/task"], dict):
        return None
    answers = _with_names(documents)
    return answers if _are_complete(answers) else None


def _documents(address: str) -> dict[str, Any]:
    return {
        path: requests.get(f"{address}{path}", timeout=LIMIT_SECONDS).json()
        for path in ("", "/task", "/stats", "/task/stats")
    }


def _with_names(documents: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(documents).replace(str(_ROOT), "/repository")
    text = _LEFT_OUT.sub("", text)
    for container in documents["/task"]["Containers"]:
        text = text.replace(container["DockerId"], f"id of {container['Name']}")
    named: dict[str, Any] = json.loads(_STRING.sub(lambda found: _ID.sub(_zeros, found[0]), text))
    return named


def _zeros(found: re.Match[str]) -> str:
    return "0" * len(found[0])


def _are_complete(answers: dict[str, Any]) -> bool:
    """Whether there are statistics of each container."""
    own = answers["/stats"]
    all_statistics = answers["/task/stats"]
    if not isinstance(own, dict) or not isinstance(all_statistics, dict):
        return False
    return all(all_statistics.values())


def shape(value: Any) -> Any:
    """The document with each value's type in its place; a list has the members of all its
    elements.
    """
    if isinstance(value, dict):
        return {name: shape(one) for name, one in value.items()}
    if isinstance(value, list):
        joined: Any = None
        for one in map(shape, value):
            joined = (
                {**joined, **one} if isinstance(joined, dict) and isinstance(one, dict) else one
            )
        return [joined]
    return "number" if type(value) in {int, float} else type(value).__name__


def shape_of_answers(answers: dict[str, Any]) -> dict[str, Any]:
    """The shape of the metadata documents, and the members of statistics, which are Docker's and
    the kernel's.
    """
    documents = {path: shape(answers[path]) for path in ("", "/task")}
    statistics = {name: _members(one) for name, one in answers["/task/stats"].items()}
    return {**documents, "/stats": _members(answers["/stats"]), "/task/stats": statistics}


def _members(statistics: Any) -> Any:
    return sorted(statistics) if isinstance(statistics, dict) else type(statistics).__name__
