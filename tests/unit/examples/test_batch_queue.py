"""examples/batch_queue.yaml: its parameter takes the printed user data."""

import base64
import re
from pathlib import Path
from typing import Any

from profiler.aws_account.setup.batch_instances import InstanceUserData, role_policy
from tests.cloudformation import listed, read_template

PATH = Path(__file__).parents[3] / "examples" / "batch_queue.yaml"
IMAGE = "111122223333.dkr.ecr.eu-west-1.amazonaws.com/task-profiler:0.1.0"
_MAX_PARAMETER = 4_096  # characters


def test_the_printed_user_data_is_a_value_of_the_parameter() -> None:
    parameter = read_template(PATH)["Parameters"]["UserData"]
    document = InstanceUserData(image=IMAGE, region="ap-southeast-1").user_data_document()
    value = base64.b64encode(document.encode()).decode()
    assert re.fullmatch(parameter["AllowedPattern"], value)
    assert len(value) <= _MAX_PARAMETER


def test_the_instances_have_the_rights_that_the_command_prints() -> None:
    role = read_template(PATH)["Resources"]["InstanceRole"]["Properties"]
    (own,) = role["Policies"][0]["PolicyDocument"]["Statement"]
    groups = ["/aws/batch/job"]
    policy: Any = role_policy("task-profiler:1", groups, region="eu-west-1", partition="aws")
    (printed,) = policy["Statement"]
    assert listed(own["Action"]) == printed["Action"]
    assert "service-role/AmazonEC2ContainerServiceforEC2Role" in str(role["ManagedPolicyArns"])
