"""The clusters of taskdef/ deployed on moto: what is there afterwards, who may do what, and that
a task can be run.
"""

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.ec2.utils import generate_instance_identity_document

from tests.cloudformation import (
    ACCOUNT,
    CLUSTERS,
    REGION,
    ClusterStack,
    deploy_cluster,
    listed,
    read_template,
)
from tests.lambda_environment import moto_account
from tests.values import present

# Of each test, `make test` runs one case: the cases differ by a policy, an answer or a moment.
pytestmark = pytest.mark.diagonal(1)

SYSTEMCTL = """#!/bin/sh
echo "$*" >>FOLDER/calls
! grep -q -e "FAILS" FOLDER/docker
"""
SUPPORT = {
    "cluster-gpu": "ECS_ENABLE_GPU_SUPPORT=true",
    "cluster-neuron": "ECS_ENABLE_INF_SUPPORT=true",
}
PULLS = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
GPU = next(iter(CLUSTERS))


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with moto_account(monkeypatch, REGION):
        yield


each_cluster = pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.stem)


def group_of(stack: ClusterStack) -> dict[str, Any]:
    groups = boto3.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    (found,) = [
        one
        for one in groups
        if one["AutoScalingGroupName"] == stack.outputs["AutoScalingGroupName"]
    ]
    return dict(found)


def launch_data() -> dict[str, Any]:
    (template,) = boto3.client("ec2").describe_launch_templates()["LaunchTemplates"]
    described = boto3.client("ec2").describe_launch_template_versions(
        LaunchTemplateId=template["LaunchTemplateId"]
    )
    (version,) = described["LaunchTemplateVersions"]
    return dict(version["LaunchTemplateData"])


@each_cluster
def test_instances_join_the_cluster_with_their_devices(path: Path) -> None:
    stack = deploy_cluster(path)
    script = base64.b64decode(launch_data()["UserData"]).decode()
    begin, cluster = (
        ("#!/bin/bash", "cat >>/etc/ecs/ecs.config <<'END'"),
        stack.outputs["ClusterName"],
    )
    config = [*begin, f"ECS_CLUSTER={cluster}", SUPPORT[path.stem], "END"]
    own_config, _, after_config = script.partition("\nEND\n")
    assert [*own_config.splitlines(), "END"] == config
    assert bool(after_config) is (path == GPU)


@pytest.mark.parametrize(
    ("fails", "options"),
    [
        ("nothing", 'OPTIONS="--default-runtime nvidia --default-ulimit nofile=32768:65536"'),
        ("--default-runtime nvidia", 'OPTIONS="--default-ulimit nofile=32768:65536"'),
    ],
)
def test_nvidias_runtime_becomes_dockers_default_unless_docker_refuses_it(
    fails: str, options: str, tmp_path: Path
) -> None:
    """On Amazon Linux 2 and 2023, Docker's options are in this file."""
    deploy_cluster(GPU)
    script = base64.b64decode(launch_data()["UserData"]).decode()
    _, _, after_config = script.partition("\nEND\n")
    file = tmp_path / "docker"
    file.write_text('DAEMON_MAXFILES=1048576\nOPTIONS="--default-ulimit nofile=32768:65536"\n')
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(SYSTEMCTL.replace("FOLDER", str(tmp_path)).replace("FAILS", fails))
    systemctl.chmod(0o755)
    command = after_config.replace("/etc/sysconfig/docker", str(file))
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run(["/bin/sh", "-c", command], check=True, env={"PATH": path})
    assert file.read_text().splitlines() == ["DAEMON_MAXFILES=1048576", options]
    calls = (tmp_path / "calls").read_text().splitlines()
    assert set(calls) == {"restart docker"}


@pytest.mark.parametrize("public_ip", ["true", "false"])
def test_instances_are_closed_and_in_the_given_subnets(public_ip: str) -> None:
    stack = deploy_cluster(GPU, PublicIp=public_ip)
    data = launch_data()
    assert data["MetadataOptions"]["HttpTokens"] == "required"
    assert data["MetadataOptions"]["HttpPutResponseHopLimit"] == 1
    (interface,) = data["NetworkInterfaces"]
    assert str(interface["AssociatePublicIpAddress"]).lower() == public_ip
    (group,) = boto3.client("ec2").describe_security_groups(GroupIds=interface["Groups"])[
        "SecurityGroups"
    ]
    assert group["IpPermissions"] == []
    assert [one["IpProtocol"] for one in group["IpPermissionsEgress"]] == ["-1"]
    subnets = [one["SubnetId"] for one in boto3.client("ec2").describe_subnets()["Subnets"]][:2]
    assert group_of(stack)["VPCZoneIdentifier"].split(",") == subnets
    (disk,) = data["BlockDeviceMappings"]
    assert disk["Ebs"]["Encrypted"] in {True, "true"}


@each_cluster
def test_the_batch_is_that_of_the_task_definition_in_this_folder(path: Path) -> None:
    """With its family, images and command given, all else but account and Region is the same."""
    wanted = json.loads(CLUSTERS[path].read_text())
    batch, monitor = wanted["containerDefinitions"]
    images = {"BatchImage": batch["image"], "MonitorImage": monitor["image"]}
    stack = deploy_cluster(
        path, Family=wanted["family"], BatchCommand=",".join(batch["command"]), **images
    )
    roles = {f"{kind}RoleArn": stack.definition[f"{kind}RoleArn"] for kind in ("task", "execution")}
    assert all(arn.startswith(f"arn:aws:iam::{ACCOUNT}:role/night-") for arn in roles.values())
    here = json.loads(json.dumps({**wanted, **roles}).replace("us-west-2", REGION))
    for container, original in zip(
        here["containerDefinitions"], wanted["containerDefinitions"], strict=True
    ):
        container["image"] = original["image"]
    made = {name: value for name, value in stack.definition.items() if name != "tags"}
    assert made == here


@each_cluster
def test_what_the_schedule_asks_for_runs_on_an_instance_of_the_group(path: Path) -> None:
    """The group starts an instance, the instance joins, and RunTask takes the schedule's words."""
    stack = deploy_cluster(path, BatchMemoryMB="4096")  # moto's instances are small
    name = stack.outputs["AutoScalingGroupName"]
    boto3.client("autoscaling").set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=1)
    (started,) = group_of(stack)["Instances"]
    instance = boto3.resource("ec2").Instance(started["InstanceId"])
    assert instance.instance_type == read_template(path)["Parameters"]["InstanceType"]["Default"]
    ecs, cluster = boto3.client("ecs"), stack.outputs["ClusterName"]
    document = json.dumps(generate_instance_identity_document(instance))
    ecs.register_container_instance(cluster=cluster, instanceIdentityDocument=document)
    target = stack.schedule["Target"]
    parameters = target["EcsParameters"]
    how = {
        "count": parameters["TaskCount"],
        "capacityProviderStrategy": parameters["CapacityProviderStrategy"],
    }
    ran = ecs.run_task(cluster=target["Arn"], taskDefinition=parameters["TaskDefinitionArn"], **how)
    (task,) = ran["tasks"]
    assert task["taskDefinitionArn"] == stack.outputs["TaskDefinitionArn"]
    assert (
        task["containerInstanceArn"]
        in ecs.list_container_instances(cluster=cluster)["containerInstanceArns"]
    )


# Who may do what


def test_the_schedule_may_run_this_task_and_hand_over_its_roles() -> None:
    """The schedule may run this task and hand over its roles and the task may only put its report."""
    stack = deploy_cluster(GPU)
    run, hand_over, keep = stack.statements("ScheduleRole")
    definition, cluster = (
        stack.definition,
        f"arn:aws:ecs:{REGION}:{ACCOUNT}:cluster/{stack.outputs['ClusterName']}",
    )
    family = definition["family"]
    revisions = f"arn:aws:ecs:{REGION}:{ACCOUNT}:task-definition/{family}:*"
    assert run["Action"] == "ecs:RunTask"
    assert run["Resource"] == revisions
    assert run["Condition"] == {"ArnEquals": {"ecs:cluster": cluster}}
    assert hand_over["Action"] == "iam:PassRole"
    assert hand_over["Resource"] == [definition["taskRoleArn"], definition["executionRoleArn"]]
    assert hand_over["Condition"] == {
        "StringEquals": {"iam:PassedToService": "ecs-tasks.amazonaws.com"}
    }
    letters = stack.schedule["Target"]["DeadLetterConfig"]["Arn"]
    assert keep["Action"] == "sqs:SendMessage"
    assert keep["Resource"] == letters
    (put,) = stack.statements("TaskRole")
    group = stack.outputs["LogGroupName"]
    streams = f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{group}:log-stream:ecs/batch/*"
    assert put["Action"] == "logs:PutLogEvents"
    assert put["Resource"] == streams


@pytest.mark.parametrize(
    ("image", "region", "name"),
    [
        ("us-west-2.amazonaws.com/training:12", "us-west-2", "training"),
        ("us-west-2.amazonaws.com/team/a/training:1@sha256:0f", "us-west-2", "team/a/training"),
        ("cn-north-1.amazonaws.com.cn/team/training:12", "cn-north-1", "team/training"),
    ],
)
def test_images_may_be_pulled_from_their_own_repositories_only(
    image: str, region: str, name: str
) -> None:
    stack = deploy_cluster(GPU, BatchImage=f"111122223333.dkr.ecr.{image}")
    statements = {one["Sid"]: one for one in stack.statements("ExecutionRole")}
    assert statements["PullTheBatchsImage"]["Action"] == PULLS
    assert (
        statements["PullTheBatchsImage"]["Resource"]
        == f"arn:aws:ecr:{region}:111122223333:repository/{name}"
    )
    assert statements["SignInToTheRegistry"]["Resource"] == "*"
    assert "PullTheMonitorsImage" not in statements, "it is not in ECR"


@pytest.mark.parametrize(
    "image", ["python:3.13-slim", "public.ecr.aws/neuron/x:1", "registry.example.com:5000/a/b:1"]
)
def test_images_from_elsewhere_need_no_right(image: str) -> None:
    stack = deploy_cluster(GPU, BatchImage=image, MonitorImage=image)
    assert [one["Sid"] for one in stack.statements("ExecutionRole")] == [
        "OpenTheLogs",
        "WriteTheLogs",
    ]


@each_cluster
def test_no_action_and_no_resource_is_wide(path: Path) -> None:
    image = "111122223333.dkr.ecr.us-west-2.amazonaws.com/training:12"
    stack = deploy_cluster(path, BatchImage=image, MonitorImage=image)
    linter = Path(str(present(find_spec("cfnlint")).origin)).parent  # slow to import
    known = json.loads((linter / "data" / "AdditionalSpecs" / "Policies.json").read_text())
    for role in ("TaskRole", "ExecutionRole", "ScheduleRole"):
        for statement in stack.statements(role):
            actions = listed(statement["Action"])
            assert not [action for action in actions if "*" in action]
            if "*" in listed(statement["Resource"]):
                for service, name in (action.split(":") for action in actions):
                    assert "Resources" not in known[service]["Actions"][name.lower()], name
