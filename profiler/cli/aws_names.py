"""Options with a name of AWS, which the service would refuse later, perhaps after other changes."""

import re
from typing import Any

import click

from profiler.cli.options import Text

_ARN = r"arn:aws[a-z-]*:"
_GROUP = r"[.\-_/#A-Za-z0-9]{1,512}"
_FUNCTION = r"[A-Za-z0-9_-]{1,140}"


class AwsName(Text):
    """A name of which AWS says the form; ``form`` says it to a person.

    ``is_list``: several with commas between them.
    """

    def __init__(self, pattern: str, form: str, *, is_list: bool = False) -> None:
        self._pattern = re.compile(pattern, re.ASCII)
        self._form = form
        self._is_list = is_list

    def convert(
        self,
        value: Any,  # noqa: ANN401  click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str:
        text = super().convert(value, param, ctx)
        for name in text.split(",") if self._is_list else (text,):
            if not self._pattern.fullmatch(name.strip() if self._is_list else name):
                self.fail(f"{name.strip()!r} is not {self._form}.", param, ctx)
        return text


# https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_CreateCluster.html
CLUSTER = AwsName(
    rf"(?:{_ARN}ecs:[a-z0-9-]+:\d{{12}}:cluster/)?[A-Za-z0-9_-]{{1,255}}",
    "an ECS cluster's name or ARN: use letters, digits, - and _",
)
# https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_CreateLogGroup.html
LOG_GROUP = AwsName(
    _GROUP, "a log group's name: use letters, digits and . - _ / #, and no ARN, as in /ecs/jobs"
)
LOG_GROUPS = AwsName(
    r"[.\-_/#A-Za-z0-9*?\[\]!]{1,512}",
    "a log group's name or a pattern of them: use letters, digits and . - _ / # * ? [], and no "
    "ARN, as in /ecs/*",
)
# https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html
FUNCTION = AwsName(
    rf"(?:{_ARN}lambda:)?(?:[a-z0-9-]+:)?(?:\d{{12}}:)?(?:function:)?{_FUNCTION}"
    r"(?::(?:\$LATEST|[A-Za-z0-9_-]+))?",
    "a Lambda function's name or ARN: use letters, digits, - and _",
)
# https://docs.aws.amazon.com/IAM/latest/APIReference/API_CreateRole.html
ROLE = AwsName(
    rf"(?:{_ARN}iam::\d{{12}}:role/(?:[!-~]*/)?)?[\w+=,.@-]{{1,64}}",
    "a role's name or ARN: use letters, digits and + = , . @ _ -",
)
SUBNETS = AwsName(
    r"subnet-[0-9a-f]{1,17}",
    "a subnet's id: write subnet-…, with commas between several",
    is_list=True,
)
SECURITY_GROUPS = AwsName(
    r"sg-[0-9a-f]{1,17}",
    "a security group's id: write sg-…, with commas between several",
    is_list=True,
)
# https://docs.aws.amazon.com/AmazonECR/latest/APIReference/API_CreateRepository.html
REPOSITORY = AwsName(
    r"(?=.{2,256}\Z)(?:[a-z0-9]+(?:[._-][a-z0-9]+)*/)*[a-z0-9]+(?:[._-][a-z0-9]+)*",
    "a repository's name: use small letters, digits and . _ - /, as in team/task-profiler",
)
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
BUCKET = AwsName(
    r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
    "a bucket's name: use 3 to 63 small letters, digits, . and -",
)
# https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_ContainerDefinition.html
CONTAINER = AwsName(r"[A-Za-z0-9_-]{1,255}", "a container's name: use letters, digits, - and _")
# https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_CreateLogStream.html
STREAM_PREFIX = AwsName(
    r"[^:*\s]{1,128}", "a stream's prefix: leave out spaces, : and *, as in ecs"
)
