"""Task definitions with the sidecars of the vendors' documentation, and the monitor of an
instance on moto.
"""

import json
from pathlib import Path
from typing import Any

ACCOUNT = "123456789012"
REGION = "us-east-1"
IMAGE = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/task-profiler:0.1.0"  # the monitor's
TASK_ROLE = f"arn:aws:iam::{ACCOUNT}:role/nightly-task"
EXECUTION_ROLE = f"arn:aws:iam::{ACCOUNT}:role/nightly-execution"


def awslogs(
    group: str = "/ecs/jobs", *, region: str = REGION, prefix: str = "ecs"
) -> dict[str, Any]:
    options = {"awslogs-group": group, "awslogs-region": region, "awslogs-stream-prefix": prefix}
    return {"logDriver": "awslogs", "options": options}


BATCH: dict[str, Any] = {
    "name": "etl",
    "image": f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/etl:1",
    "command": ["python", "-m", "etl", "--full"],
    "environment": [{"name": "STAGE", "value": "live"}, {"name": "BUCKET", "value": "results"}],
    "secrets": [
        {"name": "DB", "valueFrom": f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:db-AbCdEf"}
    ],
    "linuxParameters": {"initProcessEnabled": True},
    "stopTimeout": 60,
    "logConfiguration": awslogs(),
}
XRAY: dict[str, Any] = {
    "name": "xray-daemon",
    "image": "public.ecr.aws/xray/aws-xray-daemon:3.3.13",
    "cpu": 32,
    "memoryReservation": 256,
    "logConfiguration": awslogs(prefix="xray"),
}
ADOT: dict[str, Any] = {
    "name": "aws-otel-collector",
    "image": "public.ecr.aws/aws-observability/aws-otel-collector:v0.40.0",
    "command": ["--config=/etc/ecs/ecs-default-config.yaml"],
    "essential": True,
    "secrets": [{"name": "AOT_CONFIG_CONTENT", "valueFrom": "otel-collector-config"}],
    "healthCheck": {
        "command": ["/healthcheck"],
        "interval": 5,
        "timeout": 6,
        "retries": 5,
        "startPeriod": 1,
    },
    "logConfiguration": awslogs(prefix="otel"),
}
ROUTER: dict[str, Any] = {
    "name": "log_router",
    "image": "public.ecr.aws/aws-observability/aws-for-fluent-bit:stable",
    "essential": True,
    "memoryReservation": 50,
    "user": "0",
    "firelensConfiguration": {"type": "fluentbit", "options": {"enable-ecs-log-metadata": "true"}},
    "logConfiguration": awslogs(prefix="firelens"),
}
ROUTED: dict[str, Any] = {
    "logDriver": "awsfirelens",
    "options": {
        "Name": "datadog",
        "Host": "http-intake.logs.datadoghq.com",
        "TLS": "on",
        "dd_service": "etl",
    },
    "secretOptions": [
        {"name": "apikey", "valueFrom": f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/datadog"}
    ],
}
DATADOG: dict[str, Any] = {
    "name": "datadog-agent",
    "image": "public.ecr.aws/datadog/agent:7",
    "essential": True,
    "secrets": [
        {"name": "DD_API_KEY", "valueFrom": f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/datadog"}
    ],
    "healthCheck": {
        "command": ["CMD-SHELL", "agent health"],
        "interval": 30,
        "timeout": 5,
        "retries": 3,
    },
}
ENVOY: dict[str, Any] = {
    "name": "envoy",
    "image": f"840364872350.dkr.ecr.{REGION}.amazonaws.com/aws-appmesh-envoy:v1.29.6.0-prod",
    "essential": True,
    "user": "1337",
    "memory": 500,
    "healthCheck": {
        "command": ["CMD-SHELL", "curl -s http://localhost:9901/server_info"],
        "interval": 5,
        "retries": 3,
    },
}
PROXY: dict[str, Any] = {
    "type": "APPMESH",
    "containerName": "envoy",
    "properties": [
        {"name": "IgnoredUID", "value": "1337"},
        {"name": "ProxyEgressPort", "value": "15001"},
    ],
}


def _task(*containers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "taskRoleArn": TASK_ROLE,
        "executionRoleArn": EXECUTION_ROLE,
        "networkMode": "awsvpc",
        "requiresCompatibilities": ["FARGATE"],
        "runtimePlatform": {"cpuArchitecture": "X86_64", "operatingSystemFamily": "LINUX"},
        "cpu": "1024",
        "memory": "4096",
        "ephemeralStorage": {"sizeInGiB": 40},
        "tags": [{"key": "team", "value": "data"}, {"key": "cost-centre", "value": "17"}],
        "containerDefinitions": list(containers),
        **fields,
    }


def definitions_with_sidecars() -> dict[str, dict[str, Any]]:
    """Definitions without their family, by the sidecar."""
    waits = {"dependsOn": [{"containerName": "envoy", "condition": "HEALTHY"}]}
    return {
        "xray": _task(BATCH, XRAY),
        "adot": _task(ADOT, BATCH),
        "firelens": _task(ROUTER, {**BATCH, "logConfiguration": ROUTED}),
        "datadog": _task(BATCH, DATADOG),
        "envoy": _task({**BATCH, **waits}, ENVOY, proxyConfiguration=PROXY),
    }


GUARD_DUTY = {
    "name": "aws-guardduty-agent-1a2b3c",
    "image": "733349766148.dkr.ecr.us-west-2.amazonaws.com/agent:v1",
}
SERVICE_CONNECT = {
    "name": "ecs-service-connect-AbC123",
    "image": "ecs-service-connect-agent:interface-v1",
}
SIDECARS = {str(sidecar["name"]): sidecar for sidecar in (XRAY, ADOT, {"name": "own-helper"})}
INJECTED = (GUARD_DUTY, SERVICE_CONNECT)

INSTANCE_MONITOR = Path(__file__).parents[1] / "taskdef" / "instance-monitor.json"


def run_instance_monitor(
    ecs: Any, cluster: str = "jobs", families: str = "", scope: str = "instance"
) -> None:
    """Register the definition, with a list of families if there is one, and create the DAEMON
    service.
    """
    definition = json.loads(INSTANCE_MONITOR.read_text())
    (container,) = definition["containerDefinitions"]
    variables = {one["name"]: one["value"] for one in container["environment"]} | {
        "TASK_PROFILER_SCOPE": scope
    }
    variables |= {"TASK_PROFILER_FAMILIES": families} if families else {}
    container["environment"] = [{"name": name, "value": value} for name, value in variables.items()]
    registered = ecs.register_task_definition(**definition)["taskDefinition"]["taskDefinitionArn"]
    strategy = {"schedulingStrategy": "DAEMON", "launchType": "EC2"}
    ecs.create_service(
        cluster=cluster, serviceName="instance-monitor", taskDefinition=registered, **strategy
    )
