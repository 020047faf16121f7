"""What Prefect says about the tasks whose names are on standard input.

Runs in an environment of its own.
"""

import asyncio
import json
import logging
import sys
from typing import Any

import boto3
from prefect import flow, get_client
from prefect.client.schemas.objects import StateType
from prefect.states import Running
from prefect.testing.utilities import prefect_test_harness
from prefect_aws.observers.ecs import mark_runs_as_crashed


@flow  # type: ignore[untyped-decorator]
def etl() -> None:
    pass


async def observed(name: str, container: str) -> str:
    """The verdict on a running flow; it runs on until the batch itself says that it has ended."""
    (task,) = boto3.client("ecs").describe_tasks(cluster=name, tasks=[name])["tasks"]
    names = {"batch": container}
    containers = [
        {**one, "name": names.get(one["name"], one["name"])} for one in task["containers"]
    ]
    event: dict[str, Any] = {"detail": {**task, "containers": containers}}
    async with get_client() as client:
        run = await client.create_flow_run(etl, state=Running())
        await mark_runs_as_crashed(event, {"prefect.io/flow-run-id": str(run.id)})
        state = (await client.read_flow_run(run.id)).state
    return "fails" if state is not None and state.type is StateType.CRASHED else "ok"


async def verdicts(name: str) -> dict[str, str]:
    return {
        "container prefect": await observed(name, "prefect"),
        "other container": await observed(name, "batch"),
    }


async def main(names: list[str]) -> dict[str, dict[str, str]]:
    return {name: await verdicts(name) for name in names}


if __name__ == "__main__":
    logging.disable()
    with prefect_test_harness(server_startup_timeout=300):
        found = asyncio.run(main(json.load(sys.stdin)))
    sys.stdout.write(json.dumps(found))
