"""What Dagster says about the tasks whose names are on standard input.

Runs in an environment of its own.
"""

import json
import logging
import sys
from types import SimpleNamespace
from typing import Any

from dagster import AssetExecutionContext, DagsterInstance, DagsterRun, asset, materialize
from dagster._core.pipes import utils
from dagster_aws.ecs.executor import EcsStepHandler
from dagster_aws.ecs.launcher import EcsRunLauncher
from dagster_aws.pipes import PipesECSClient

# It waits that long for further lines, and for log streams that do not exist.
utils.WAIT_FOR_LOGS_AFTER_EXECUTION_INTERVAL = utils.WAIT_FOR_LOGS_TIMEOUT = 1


def piped(name: str, container: str | None) -> str:
    @asset  # type: ignore[untyped-decorator]
    def etl(context: AssetExecutionContext) -> Any:
        run_task: Any = {"taskDefinition": name, "cluster": name}
        client = PipesECSClient()
        done = client.run(context=context, run_task_params=run_task, pipes_container_name=container)
        return done.get_materialize_result()

    return "ok" if materialize([etl], raise_on_error=False).success else "fails"


def launched(name: str, instance: DagsterInstance) -> str:
    launcher = EcsRunLauncher(use_current_ecs_task_config=False)
    launcher.register_instance(instance)
    run = DagsterRun(job_name="etl", tags={"ecs/task_arn": name, "ecs/cluster": name})
    instance.add_run(run)
    return {"SUCCESS": "ok", "FAILED": "fails"}[launcher.check_run_worker_health(run).status.value]


def stepped(name: str) -> str:
    """The handler of steps without its constructor, which asks for the task that it runs in."""
    handler = EcsStepHandler.__new__(EcsStepHandler)
    handler.ecs = EcsRunLauncher(use_current_ecs_task_config=False).ecs
    handler._cluster_arn, handler._launched_tasks = name, {"run-step": name}
    handler._get_step_key, handler._get_step_id = lambda _: "step", lambda _: "run-step"
    context: Any = SimpleNamespace()
    return "ok" if handler.check_step_health(context).is_healthy else "fails"


def verdicts(name: str, instance: DagsterInstance) -> dict[str, str]:
    return {
        "PipesECSClient": piped(name, "batch"),
        "PipesECSClient without pipes_container_name": piped(name, None),
        "run launcher": launched(name, instance),
        "step executor": stepped(name),
    }


if __name__ == "__main__":
    logging.disable()
    with DagsterInstance.ephemeral() as opened:
        found = {one: verdicts(one, opened) for one in json.load(sys.stdin)}
    sys.stdout.write(json.dumps(found))
