"""Plays CloudTrail's LookupEvents, which moto does not have, and makes the events of ECS and EventBridge."""

import json
from datetime import datetime
from typing import Any

REGION, ACCOUNT = "eu-west-1", "123456789012"


def event(name: str, time: str, request: dict[str, Any] | None, **fields: Any) -> dict[str, Any]:
    """An event as CloudTrail stores it."""
    return {"eventName": name, "eventTime": time, "requestParameters": request, **fields}


def run_task(time: str, *, failure: str | None = None, family: str = "nightly", **given: Any) -> dict[str, Any]:
    """A call of RunTask by EventBridge Scheduler, which started a task unless it has a failure."""
    arn = f"arn:aws:ecs:{REGION}:{ACCOUNT}"
    request = {
        "cluster": f"{arn}:cluster/{given.pop('cluster', 'jobs')}",
        "taskDefinition": f"{arn}:task-definition/{family}:3",
        "startedBy": given.pop("started_by", "chronos-schedule/nightly"),
        "count": 1,
        "overrides": "HIDDEN_DUE_TO_SECURITY_REASONS",
    }
    task = {"taskArn": f"{arn}:task/jobs/0123"}
    answer = (
        {"failures": [{"arn": "", "reason": failure}], "tasks": []} if failure else {"failures": [], "tasks": [task]}
    )
    return event("RunTask", time, request, **{"responseElements": answer, **given})


class FakeCloudTrail:
    """The client. Its events are in no order; a page has two."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self.events = list(events)
        self.requests: list[dict[str, Any]] = []

    def lookup_events(self, **given: Any) -> dict[str, Any]:
        """Answer as CloudTrail, newest first."""
        self.requests.append(given)
        (attribute,) = given["LookupAttributes"]
        assert attribute["AttributeKey"] == "EventName"
        found = [
            one
            for one in self.events
            if one["eventName"] == attribute["AttributeValue"]
            and given["StartTime"] <= datetime.fromisoformat(one["eventTime"]) <= given["EndTime"]
        ]
        found.sort(key=lambda one: str(one["eventTime"]), reverse=True)
        start = int(given.get("NextToken", 0))
        page = {"Events": [{"CloudTrailEvent": json.dumps(one)} for one in found[start : start + 2]]}
        return page | ({"NextToken": str(start + 2)} if len(found) > start + 2 else {})
