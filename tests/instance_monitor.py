"""The instance monitor of taskdef/instance-monitor.json as a service on moto."""

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "taskdef" / "instance-monitor.json"


def run_instance_monitor(ecs: Any, cluster: str = "jobs", families: str = "", scope: str = "instance") -> None:
    """Register the definition, with a list of families if there is one, and create the DAEMON service."""
    definition = json.loads(FILE.read_text())
    (container,) = definition["containerDefinitions"]
    variables = {one["name"]: one["value"] for one in container["environment"]} | {"TASK_PROFILER_SCOPE": scope}
    variables |= {"TASK_PROFILER_FAMILIES": families} if families else {}
    container["environment"] = [{"name": name, "value": value} for name, value in variables.items()]
    registered = ecs.register_task_definition(**definition)["taskDefinition"]["taskDefinitionArn"]
    strategy = {"schedulingStrategy": "DAEMON", "launchType": "EC2"}
    ecs.create_service(cluster=cluster, serviceName="instance-monitor", taskDefinition=registered, **strategy)
