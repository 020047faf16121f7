"""``task-profiler setup batch-instances``."""

import json

import click

from profiler.cli.aws_names import LOG_GROUP
from profiler.cli.options import aws_options, flag, image_option, repeatable
from profiler.cli.printing import say, warn
from profiler.cli.taskdef_command import parse_settings
from profiler.cli.wiring.aws_options import open_clients
from profiler.core.commands_to_copy import command_line
from profiler.core.ecs_terms import BATCH_LOG_GROUP, MONITOR_REPOSITORY
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.version import __version__
from profiler.settings import SCOPE_VARIABLE

_OWN_SETTINGS = (SCOPE_VARIABLE, "AWS_REGION")
_NEXT = (
    "Nothing was changed. Give a launch template this user data (the API wants it in base64), or "
    "add its part to the user data that the template has, and name the template in the compute "
    "environment. The instances' role needs the rights that --policy prints."
)


@click.command(
    "batch-instances",
    epilog="Example: task-profiler setup batch-instances > user-data.txt",
)
@image_option("The monitor's image (default: the one that setup image pushes).")
@repeatable("--setting settings", "NAME=VALUE", "Set this environment variable of the monitor.")
@flag("--policy prints_policy", "Print the IAM policy that the instances' role needs.")
@repeatable(
    "--log-group groups",
    "NAME",
    f"With --policy: a log group of jobs (default: {BATCH_LOG_GROUP}).",
    type=LOG_GROUP,
)
@aws_options
def batch_instances(
    *,
    image: str | None,
    settings: tuple[str, ...],
    prints_policy: bool,
    groups: tuple[str, ...],
    region: str | None,
    profile: str | None,
) -> None:
    """Print the user data with which AWS Batch's EC2 instances run one monitor for all their jobs.

    Nothing is changed in the account. The monitor is a container of Docker's, no service of ECS,
    which would keep Batch from scaling in. Job definitions stay as they are, and each attempt has a
    report in its job's log stream.
    """
    # boto3 is slow to import.
    from profiler.aws_account.setup.batch_instances import InstanceUserData, role_policy
    from profiler.aws_account.setup.monitor_image import ImageRepository

    variables = parse_settings(settings, "instance")
    own = [name for name in _OWN_SETTINGS if name in variables]
    if own:
        raise UsageError(f"--setting cannot set {own[0]}, which the user data sets: leave it out.")
    if groups and not prints_policy:
        raise UsageError("--log-group is for the policy: add --policy.")
    ecr = open_clients(region, profile)("ecr")
    if image is None:
        uri = ImageRepository(ecr, MONITOR_REPOSITORY).read_uri()
        if uri is None:
            push = command_line("setup", "image")
            raise TaskProfilerError(
                f"ECR has no repository {MONITOR_REPOSITORY}: run {push}, or name the image with "
                "--image."
            )
        image = f"{uri}:{__version__}"
    user_data = InstanceUserData(image=image, region=ecr.meta.region_name, settings=variables)
    if not prints_policy:
        say(user_data.user_data_document(), end="")
        warn(_NEXT)
        return
    policy = role_policy(
        image,
        groups or (BATCH_LOG_GROUP,),
        region=ecr.meta.region_name,
        partition=ecr.meta.partition,
    )
    say(json.dumps(policy, indent=2))
