"""What Step Functions and AWS Batch say about a task with a monitor, by AWS's documentation:
nothing of theirs runs outside of AWS.

"If the essential parameter of a container is marked as false, its failure doesn't affect the rest
of the containers in a task" (ECS: ContainerDefinition; AWS Batch: TaskContainerProperties). Whether
a task on Fargate starts without the image of such a container is not documented.
"""

from collections.abc import Iterable, Mapping

from profiler.task_definitions.containers import read_containers
from profiler.task_definitions.job_definitions import JobDefinition, container_objects
from profiler.task_definitions.job_monitor import add_to_job
from profiler.task_definitions.monitor_changes import AddMonitorOptions
from tests.orchestrators.matrix import PULL_FAILED, WITHOUT, WRAPPER, Case

STEP_FUNCTIONS, BATCH = "`ecs:runTask.sync`", "job"
_JOB = {
    "jobDefinitionName": "etl",
    "type": "container",
    "platformCapabilities": ["FARGATE"],
    "ecsProperties": {
        "taskProperties": [
            {
                "executionRoleArn": "arn:aws:iam::123456789012:role/etl",
                "taskRoleArn": "arn:aws:iam::123456789012:role/etl",
                "containers": [
                    {
                        "name": "batch",
                        "image": "etl:26",
                        "command": ["python", "etl.py"],
                        "resourceRequirements": [
                            {"type": "VCPU", "value": "1"},
                            {"type": "MEMORY", "value": "2048"},
                        ],
                    }
                ],
            }
        ]
    },
}


def verdicts(case: Case) -> dict[str, str]:
    """The verdict on a case by the documentation, of the definitions that add-monitor makes."""
    task = ((one.name, one.essential is not False) for one in read_containers(case.definition()))
    return {STEP_FUNCTIONS: _verdict(case, task), BATCH: _verdict(case, _job_containers(case))}


def _job_containers(case: Case) -> Iterable[tuple[str, bool]]:
    definition: Mapping[str, object] = _JOB
    if case.monitor != WITHOUT:
        options = AddMonitorOptions(image="task-profiler:1", report_stream=case.stream)
        job = JobDefinition(definition=_JOB)
        definition = add_to_job(job, options, wraps=case.monitor == WRAPPER).definition
    for container in container_objects(definition):
        yield str(container["name"]), container.get("essential") is not False


def _verdict(case: Case, containers: Iterable[tuple[str, bool]]) -> str:
    ends = {one["name"]: one.get("exitCode") for one in case.task()["containers"]}
    essential = [ends[name] for name, is_essential in containers if is_essential]
    if not essential or any(essential):
        return "fails"
    return "ok, if it starts" if case.monitor == PULL_FAILED else "ok"
