"""``task-profiler setup`` and its commands ``image``, ``stack``, ``proof``, ``redrive`` and
``batch-instances``.
"""

import os
import re
import shlex
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource
from msgspec import Struct, field

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.forwarder_stack import FORWARDER_STACK, read_existing_stack
from profiler.aws_account.proof.proof_options import ProofOptions
from profiler.aws_account.replay import QueueState, RedriveProgress, queue_state
from profiler.aws_account.replay import redrive_events as redrive_queue
from profiler.aws_account.setup.monitor_image import (
    DockerProgram,
    ImageBuild,
    ImageRepository,
    build_context,
    clone_folder,
)
from profiler.cli.aws_names import BUCKET, CLUSTER, REPOSITORY, ROLE, SECURITY_GROUPS, SUBNETS
from profiler.cli.interruption import hold_stop_signals
from profiler.cli.options import (
    ImageTag,
    ProofRequest,
    WholeSentenceGroup,
    aws_options,
    flag,
    gathered,
    image_option,
    option,
    parse_tags,
    repeatable,
    yes_option,
)
from profiler.cli.printing import NOT_APPLIED, say, say_sentence, warn, write_json_lines
from profiler.cli.progress import progress_row
from profiler.cli.setup.batch_instances_command import batch_instances
from profiler.cli.standard_streams import terminal_columns
from profiler.cli.styled_text import Line, Span, wrapped_lines, write_lines, write_paragraph
from profiler.cli.wiring.aws_options import check_region, open_clients, search_session
from profiler.core.aws_lost_answers import has_surely_changed_nothing
from profiler.core.clock import SystemClock
from profiler.core.commands_to_copy import aws_command_line, command_line
from profiler.core.ecs_terms import MONITOR_REPOSITORY, cluster_name
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.notice_channels import SLACK, ChannelKind
from profiler.core.optional_math import any_known, known_members
from profiler.core.text import listed, split_names
from profiler.core.timestamps import NS_PER_MS
from profiler.core.version import __version__
from profiler.record.units import format_count

if TYPE_CHECKING:
    from profiler.aws_account.setup.setup_steps import SetupStep


_STATES = {True: ("done", "green"), False: ("not done", "yellow"), None: ("unknown", "cyan")}
_INDENT = " " * 22
# The variables of a sign-in, and their names in a secret.
_CREDENTIALS = {
    "ELASTICSEARCH_API_KEY": "api_key",
    "ELASTICSEARCH_USER": "username",
    "ELASTICSEARCH_PASSWORD": "password",
}
_GOES_ON = " \\"
_PERMISSIONS = (
    "sqs:GetQueueAttributes, ReceiveMessage, DeleteMessage and ChangeMessageVisibility, and "
    "lambda:InvokeFunction"
)
# https://docs.aws.amazon.com/tag-editor/latest/userguide/best-practices-and-strats.html
_SIGNS_OF_TAGS = "_.:/=+-@"
_MAX_KEY_LENGTH = 128
_MAX_VALUE_LENGTH = 256
# As the template's parameter, with a host.
_OTLP_ADDRESS = re.compile(r"https?://[^\s@/?#:][^\s@]*")
# What a deletion reads.
_WITH_DELETE = ("delete", "name", "yes", "as_json", "region", "profile")
# The names of the functions, which begin with the stack's, have at most 64 characters.
_STACK = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,49}", re.ASCII)


def checked_stack_name(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
    """Refuse what AWS would refuse later.

    CloudFormation's answer to an empty name is all stacks.
    """
    if not _STACK.fullmatch(name):
        raise UsageError(
            f"--name {name!r} is not a stack's name: use at most 50 letters, digits and hyphens, "
            "a letter first."
        )
    return name


def _read_secret(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> str | None:
    """A secret, or that in the file of ``@FILE``: all users of the machine see a command line."""
    if value is None or not value.startswith("@"):
        return value
    try:
        with click.open_file(value[1:], encoding="utf-8-sig") as file:
            secret = str(file.read()).strip()
    except (OSError, ValueError):
        secret = ""
    if secret:
        return secret
    # Without the value, which may be a password.
    raise click.BadParameter(
        "The file that follows @ is empty or cannot be read: check it and its path."
    )


def _parse_ids(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> tuple[str, ...]:
    """The ids in a list."""
    return split_names(text or "")


_name_option = option(
    "--name", "STACK", "Name of the stack.", default=FORWARDER_STACK, callback=checked_stack_name
)


@click.group(
    "setup",
    cls=WholeSentenceGroup,
    invoke_without_command=True,
    epilog="Example: task-profiler setup --cluster jobs",
)
@repeatable("--cluster clusters", "NAME", "Only this ECS cluster (default: all).", type=CLUSTER)
@flag("--json as_json", "Print one JSON object for each step.")
@aws_options
@click.pass_context
def setup(
    context: click.Context,
    *,
    clusters: tuple[str, ...],
    as_json: bool,
    region: str | None,
    profile: str | None,
) -> int:
    """Set up an AWS account: image, forwarder, monitors.

    Without a subcommand, print the steps, what is done already, and the next commands.
    """
    if context.invoked_subcommand is not None:
        return 0
    check_region(region, profile)
    from profiler.aws_account.clusters_and_log_groups import check_clusters
    from profiler.aws_account.setup.setup_steps import SetupStepReader  # slow to import

    open_client = open_clients(region, profile)
    if clusters:
        check_clusters(open_client, clusters)
    with progress_row() as show:
        steps = SetupStepReader(
            open_client,
            clusters,
            {"region": region, "profile": profile},
            lambda read, count: show(f"{read} of {format_count(count, 'family')}", read / count),
            SystemClock().wall_ns(),
        )
        setup_steps = list(steps.read_steps())
    code = int(not any_known(*(step.is_done for step in setup_steps)))
    if as_json:
        write_json_lines(setup_steps)
        return code
    for number, step in enumerate(setup_steps, 1):
        write_lines(_step_lines(number, step, terminal_columns()))
    for sentence in steps.hints:
        write_paragraph(sentence)
    return code


def _step_lines(number: int, step: "SetupStep", width: int | None) -> Iterator[Line]:
    word, colour = _STATES[step.is_done]
    yield from wrapped_lines(
        step.text, width, f"{number} {step.name:10}", Span(f"{word:10}", colour)
    )
    if step.is_done:
        return
    for words in step.commands:
        room = width and width - len(_GOES_ON)
        if any(" " in word for word in words):  # such a word stays whole
            room = None
        *rows, last = wrapped_lines(shlex.join(words), room, _INDENT)
        for row in rows:
            yield *row, Span(_GOES_ON)
        yield last


@setup.command("redrive", epilog="Example: task-profiler setup redrive --region eu-west-1 --yes")
@_name_option
@yes_option
@flag("--json as_json", "Print one JSON object for each function.")
@aws_options
def redrive(*, name: str, yes: bool, as_json: bool, region: str | None, profile: str | None) -> int:
    """Send failed events to the forwarder's functions again.

    They are in the dead-letter queues of its stack. Without --yes, they are counted. Repeating the
    command does no harm.
    """
    open_client = open_clients(region, profile)
    outputs = read_existing_stack(open_client, name).outputs
    redrivings = []
    for title in ("ForwardLogs", "TaskStopped"):
        queue = outputs.get(f"{title}DeadLetterQueueUrl")
        function = outputs.get(f"{title}FunctionName")
        if queue is not None and function is not None:
            one = _Redriving(
                open_client=open_client,
                queue=queue,
                function=function,
                is_sent=yes,
                is_of_stream=title == "ForwardLogs" and "ReportStreamArn" in outputs,
            )
            redrivings.append(one)
    try:
        codes = _redrive_all(redrivings, as_json=as_json)
    finally:  # also what was sent before an error or Ctrl-C
        if as_json:
            write_json_lines(one.document() for one in redrivings if one.has_begun)
    if not redrivings and not as_json:
        say_sentence(f"The stack {name} has no dead-letter queue: nothing to send.")
    elif not (yes or as_json):
        say_sentence(NOT_APPLIED)
    return max(codes, default=0)


def _redrive_all(redrivings: Sequence["_Redriving"], *, as_json: bool) -> list[int]:
    """Redrive each queue, and say what was sent. Returns the exit codes. Raises
    TaskProfilerError.
    """
    codes = []
    with hold_stop_signals("It stops after the event that is in work.") as stop:
        for redriving in redrivings:
            try:
                codes.append(redriving.redrive(stop.raise_if_stopped))
            finally:
                if redriving.has_begun and not as_json:
                    redriving.say_done()
            for sentence in redriving.remaining_event_sentences():
                warn(sentence)
    return codes


class _Redriving(Struct, kw_only=True):
    """Sends the events of one queue to its function, or only counts them."""

    open_client: OpenClient
    queue: str
    function: str
    is_sent: bool
    is_of_stream: bool  # whose records are not in the queue
    state: QueueState = QueueState(visible=0, hidden=0, hidden_minutes=0)
    done: RedriveProgress = field(default_factory=RedriveProgress)
    has_begun: bool = False  # its state was read

    @property
    def count(self) -> int:
        return self.done.sent if self.is_sent else self.state.visible

    def redrive(self, check_stop: Callable[[], object]) -> int:
        """Returns the exit code. Raises TaskProfilerError."""
        now_ms = SystemClock().wall_ns() / NS_PER_MS
        what = f"The events for {self.function} were not all sent, and the rest is in the queue"
        try:
            with aws_errors(what, _PERMISSIONS):
                self.state = queue_state(self.open_client("sqs"), self.queue)
                self.has_begun = True
                if self.is_sent:
                    redrive_queue(
                        self.open_client,
                        self.queue,
                        self.function,
                        self.done,
                        now_ms=now_ms,
                        check_stop=check_stop,
                    )
        except TaskProfilerError as error:
            if not self.is_sent or has_surely_changed_nothing(error.__cause__):
                raise
            raise TaskProfilerError(
                f"{error} What was read last may be hidden for some minutes: run the command again "
                "after that."
            ) from error.__cause__
        is_part = self.is_sent and self.state.hidden
        return int(bool(is_part or self.done.refused or self.done.loss))

    def document(self) -> dict[str, object]:
        return {
            "function": self.function,
            "isApplied": self.is_sent,
            "events": self.count,
            "refused": len(self.done.refused),
            "hidden": self.state.hidden,
        }

    def say_done(self) -> None:
        events = format_count(self.count, "event")
        if self.is_sent:
            say_sentence(f"Sent {events} to {self.function} again.")
        else:
            say_sentence(f"would send {events} to {self.function}")

    def remaining_event_sentences(self) -> Iterator[str]:
        """What is left in the queue, and why."""
        if self.state.hidden:
            minutes = format_count(self.state.hidden_minutes, "minute")
            yield (
                f"About {format_count(self.state.hidden, 'more event')} for {self.function} could "
                f"not be read, because somebody has read them in the last {minutes}, or an answer "
                "was lost: run the command again after that time."
            )
        if self.is_of_stream and self.count and not self.is_sent:
            yield (
                f"Records of a data stream are not among them: run {command_line('replay')} on "
                "their log groups."
            )
        yield from self.done.refused.values()
        if self.done.loss:
            yield self.done.loss


@setup.command("proof", epilog="Example: task-profiler setup proof --cluster jobs --yes")
@option("--cluster", "NAME", "Run the programs as tasks of this ECS cluster.", type=CLUSTER)
@option("--queue", "NAME", "Run them as jobs of this queue of AWS Batch on Fargate.")
@option(
    "--name stack", "STACK", "The forwarder's stack (default: task-profiler, if it is deployed)."
)
@option(
    "--like",
    "FAMILY",
    "Run them as this family's schedule or service, or as this job definition, with its roles.",
)
@option("--subnets", "ID,…", "In these subnets.", type=SUBNETS, callback=_parse_ids)
@option(
    *("--security-groups", "ID,…", "With these security groups."),
    type=SECURITY_GROUPS,
    callback=_parse_ids,
)
@option("--task-role", "ROLE", "With this task role.", type=ROLE)
@option("--execution-role", "ROLE", "With this execution role.", type=ROLE)
@image_option("The monitor's image (default: the one that setup image pushes).")
@option("--from source", "https://…", "Look for the documents in this search cluster.")
@flag("--keep", "Keep the log group.")
@yes_option
@flag("--json as_json", "Print the plan, or the result, as one JSON object.")
@flag("--markdown", "Print the result as a table for an issue, without names of the account.")
@aws_options
@gathered(ProofRequest, "request")
@gathered(ProofOptions, "options")
def proof(*, options: ProofOptions, request: ProofRequest) -> int:
    """Run three small programs whose usage is known, and compare what arrives of them.

    They are tasks of an ECS cluster, or jobs of a queue of AWS Batch. Without --yes, print the
    plan. With it, the programs run for some minutes and cost about a cent at
    most. Afterwards, everything but their documents is removed. Without the forwarder's stack, what
    its functions do is not checked.
    """
    from profiler.cli.setup.proof_output import print_proof  # slow to import

    return print_proof(options, request)


@setup.command("image", epilog="Example: task-profiler setup image --region eu-west-1 --yes")
@click.argument("options", metavar="[DOCKER_OPTION]...", nargs=-1)
@option("--repository", "NAME", "ECR repository.", type=REPOSITORY, default=MONITOR_REPOSITORY)
@option(
    "--tag",
    "TAG",
    "The image's tag (default: this version).",
    type=ImageTag(),
    default=__version__,
    show_default=False,
)
@repeatable(
    "--platform platforms",
    "PLATFORM",
    "Build for this platform with buildx (default: amd64 and arm64).",
)
@yes_option
@flag("--json as_json", "Print the image's URI, or the commands, as a JSON object.")
@aws_options
def image(
    *,
    options: tuple[str, ...],
    repository: str,
    tag: str,
    platforms: tuple[str, ...],
    yes: bool,
    as_json: bool,
    region: str | None,
    profile: str | None,
) -> None:
    """Build the monitor's image, push it to Amazon ECR, and print its URI.

    Without --yes, the commands are printed. A missing repository is created, with immutable tags. A
    tag that exists is not pushed again. DOCKER_OPTIONs after -- go to docker build, such as
    --build-arg BASE_IMAGE=python:3.13-slim.
    """
    ecr = ImageRepository(open_clients(region, profile)("ecr"), repository)
    uri = ecr.read_uri()
    if uri is not None and ecr.has_tag(tag):
        click.echo(f"In ECR already: {repository}:{tag}", err=True)
    else:
        docker = DockerProgram(os.environ)
        docker.check_docker()
        build = docker.plan_build(platforms, options)
        if not yes:
            commands = [*_dry_run_commands(ecr, uri, tag, build)]
            if as_json:
                write_json_lines([{"isApplied": False, "commands": commands}])
                return
            say("\n".join(commands))
            click.echo(NOT_APPLIED, err=True)
            return
        if not build.platforms:
            warn(
                "Docker's plugin buildx is not installed, so the image is for this machine's "
                "processor only."
            )
        credentials = ecr.read_credentials()
        if uri is None:
            uri = ecr.create_repository()
            click.echo(f"Created the ECR repository {ecr.name}", err=True)
        try:
            with (
                hold_stop_signals("It ends Docker first.") as stop,
                build_context() as context,
                docker.signed_in(*credentials, stop.raise_if_stopped) as signed_in,
            ):
                signed_in.build_and_push(build, f"{uri}:{tag}", str(context), stop.raise_if_stopped)
        except KeyboardInterrupt:
            warn(
                f"It ended before {repository}:{tag} was known to be in ECR. The same command "
                "looks for it, and pushes it if it is missing."
            )
            raise
    for warning in ecr.repository_warnings(tag):
        warn(warning)
    if as_json:
        write_json_lines([{"isApplied": True, "image": f"{uri}:{tag}"}])
    else:
        say(f"{uri}:{tag}")


def _dry_run_commands(
    ecr: ImageRepository, uri: str | None, tag: str, build: ImageBuild
) -> Iterator[str]:
    """The commands as a shell would run them.

    The build context of an installation does not exist before the build.
    """
    registry, _, _ = ecr.read_credentials()
    if uri is None:
        words = ("--repository-name", ecr.name, "--image-tag-mutability", "IMMUTABLE")
        yield aws_command_line("ecr", "create-repository", *words, region=ecr.region)
    password = aws_command_line("ecr", "get-login-password", region=ecr.region)
    yield f"{password} | docker login --username AWS --password-stdin {registry}"
    reference = f"{uri or f'{registry}/{ecr.name}'}:{tag}"
    for command in build.docker_commands(reference, str(clone_folder() or "CONTEXT")):
        yield shlex.join(["docker", *command])


@setup.command(
    "stack",
    epilog="Example: task-profiler setup stack --elasticsearch https://search.example.com --yes",
)
@_name_option
@option(
    "--slack-failure-webhook failure_webhook",
    "URL",
    "Slack webhook for all but successes.",
    callback=_read_secret,
)
@option(
    "--slack-success-webhook success_webhook",
    "URL",
    "Slack webhook for successes.",
    callback=_read_secret,
)
@option("--elasticsearch url", "URL", "Index the reports in this Elasticsearch or OpenSearch.")
@option("--api-key", "KEY", "API key of the functions there.", callback=_read_secret)
@option("--user", "NAME:PASSWORD", "Password of the functions there.", callback=_read_secret)
@option("--otlp otlp_url", "URL", "Export each run to this OpenTelemetry backend.")
@option(
    "--otlp-headers",
    "NAME=VALUE,…",
    "Headers of the export, such as an API key.",
    callback=_read_secret,
)
@repeatable(
    "--log-group groups",
    "NAME",
    "Subscribe this log group, or all NAME* that exist, in place of the earlier ones.",
)
@flag("--all-log-groups", "Subscribe all log groups of the Region.")
@option(
    "--instance-monitor",
    "CLUSTER",
    "Monitor each EC2 instance of this ECS cluster.",
    type=str,  # an empty one has an answer of its own
)
@flag("--no-instance-monitor", "Remove the instance monitor; its log group stays.")
@repeatable("--parameter parameters", "NAME=VALUE", "Set a template parameter.")
@repeatable(
    "--tag tags", "KEY=VALUE", "Tag the stack, its resources and new secrets; KEY= removes a tag."
)
@option(
    *("--bucket", "NAME", "Bucket for the code (default: task-profiler-ACCOUNT-REGION, created)."),
    type=BUCKET,
)
@option("--zip zip_file", "FILE", "The forwarder's zip of a release, instead of building it.")
@flag("--delete", "Delete the stack, and print what stays.")
@yes_option
@flag("--json as_json", "Print one JSON object; steps go to stderr.")
@aws_options
def stack(
    *,
    name: str,
    failure_webhook: str | None,
    success_webhook: str | None,
    url: str | None,
    api_key: str | None,
    user: str | None,
    otlp_url: str | None,
    otlp_headers: str | None,
    groups: tuple[str, ...],
    all_log_groups: bool,
    instance_monitor: str | None,
    no_instance_monitor: bool,
    parameters: tuple[str, ...],
    tags: tuple[str, ...],
    bucket: str | None,
    zip_file: str | None,
    yes: bool,
    delete: bool,
    as_json: bool,
    region: str | None,
    profile: str | None,
) -> int:
    """Deploy the forwarder by CloudFormation, or update it.

    Settings that are not given keep their values. Webhooks, API keys, passwords and headers are
    stored in Secrets Manager; @FILE instead of one reads it from a file, @- from standard input.
    Without --yes, the command prints what it would do.
    """
    # These modules are slow to import.
    from profiler.aws_account.setup.forwarder_deployment import DeploymentRequest
    from profiler.cli.setup import deployment_output

    open_client = open_clients(region, profile)
    output = deployment_output.DeploymentOutput(is_applied=yes, as_json=as_json)
    if delete:
        _refuse_beside_delete(click.get_current_context())
        deployment_output.delete_forwarder(name, open_client, output)
        return 0
    _check_addresses(url, otlp_url)
    settings = {
        "ElasticsearchUrl": url,
        "OtlpEndpoint": otlp_url,
        "LogGroups": ",".join(groups) if groups else None,
        "Subscribe": "account" if all_log_groups else None,
        "InstanceMonitorCluster": _monitored_cluster(
            instance_monitor, is_removed=no_instance_monitor
        ),
    }
    credentials = _credential_variables(api_key, user)
    request = DeploymentRequest(
        name=name,
        bucket=bucket,
        zip_file=zip_file,
        parameters=parameters,
        settings=known_members(settings),
        secrets=_secrets_by_parameter(failure_webhook, success_webhook, otlp_headers, credentials),
        tags=_parse_stack_tags(tags),
    )
    cluster = None
    if url:
        environment = _cluster_environment(credentials)
        session = search_session(url, region, profile, environment)
        cluster = deployment_output.ForwarderCluster(url, session)
    return deployment_output.deploy_forwarder(request, open_client, cluster, output)


def _refuse_beside_delete(context: click.Context) -> None:
    """Raises UsageError for options that a deletion would ignore."""
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name not in _WITH_DELETE
        and context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    ]
    if given:
        raise UsageError(f"--delete deletes the whole stack: leave out {listed(given)}.")


def _parse_stack_tags(texts: tuple[str, ...]) -> dict[str, str]:
    """The tags; an empty value removes one. Raises UsageError for what AWS would refuse later."""
    tags = dict(parse_tags(texts))
    for key, value in tags.items():
        if key.lower().startswith("aws:"):
            raise UsageError(f"--tag {key}: AWS keeps the keys that begin with aws: for itself.")
        is_short = len(key) <= _MAX_KEY_LENGTH and len(value) <= _MAX_VALUE_LENGTH
        if not (is_short and all(map(_is_allowed_in_tags, key + value))):
            raise UsageError(
                f"--tag {key}={value} is not a tag of AWS: use letters, digits, spaces and "
                f"_ . : / = + - @, at most {_MAX_KEY_LENGTH} in the key and {_MAX_VALUE_LENGTH} in "
                "the value."
            )
    return tags


def _is_allowed_in_tags(character: str) -> bool:
    return character in _SIGNS_OF_TAGS or unicodedata.category(character)[0] in "LNZ"


def _cluster_environment(credentials: Mapping[str, str]) -> Mapping[str, str]:
    """The environment with these credentials of the cluster in place of all others, if any."""
    if not credentials:
        return os.environ
    others = dict.fromkeys((*_CREDENTIALS, "ELASTICSEARCH_AWS_AUTH"), "")
    return {**os.environ, **others, **credentials}


def _monitored_cluster(cluster: str | None, *, is_removed: bool) -> str | None:
    """The name of the cluster; empty for no monitor, None for the stack's own value."""
    if cluster == "" or (cluster is not None and is_removed):
        raise UsageError(
            "--instance-monitor names a cluster: give the cluster, or --no-instance-monitor alone."
        )
    return "" if is_removed else cluster_name(cluster)


def _check_addresses(url: str | None, otlp_url: str | None) -> None:
    """Raises UsageError for a password in an address, which the stack would show, and for what is
    no address of an export.
    """
    for spelling, address, remedy in (
        ("--elasticsearch", url, "as --user NAME:PASSWORD"),
        ("--otlp", otlp_url, "in --otlp-headers"),
    ):
        if "@" in (address or ""):
            raise UsageError(f"{spelling} contains a password: give it {remedy}.")
    if otlp_url and not _OTLP_ADDRESS.fullmatch(otlp_url):
        raise UsageError(
            f"--otlp {otlp_url} is not an address: write it with https:// or http://, as in "
            "https://otlp.example.com:4318."
        )
    if otlp_url:
        from profiler.otlp.otlp_settings import check_is_of_all_signals  # rarely needed

        check_is_of_all_signals(otlp_url, "--otlp")


def _credential_variables(api_key: str | None, user: str | None) -> dict[str, str]:
    """The variables of the sign-in with the options.

    Raises UsageError for invalid ones, without their values.
    """
    if api_key and user:
        raise UsageError("--api-key and --user are two ways to sign in: give one of them.")
    name, colon, password = (user or "").partition(":")
    if user and not (name and colon and password):
        raise UsageError("--user is not NAME:PASSWORD: put a colon between them.")
    values = (api_key or "", name, password)
    credentials = {name: value for name, value in zip(_CREDENTIALS, values, strict=True) if value}
    if credentials:
        from profiler.search_setup.search_servers import signed_in_session  # requests

        signed_in_session(credentials)
    return credentials


def _secrets_by_parameter(
    failure_webhook: str | None,
    success_webhook: str | None,
    otlp_headers: str | None,
    credentials: Mapping[str, str],
) -> dict[str, dict[str, str]]:
    """The values of each secret, by the parameter that gets its name.

    No message contains a value.
    """
    webhooks: Mapping[ChannelKind, str | None] = {
        "failure": failure_webhook,
        "success": success_webhook,
    }
    slack = {
        SLACK.setting_of(kind).lower(): webhook for kind, webhook in webhooks.items() if webhook
    }
    for kind, webhook in webhooks.items():
        if webhook and not re.fullmatch(r"https://[!-~]+", webhook):
            raise UsageError(
                f"--slack-{kind}-webhook is not an address: it begins with https://, without "
                "spaces and line ends."
            )
    if otlp_headers:
        from profiler.otlp.otlp_settings import parse_headers  # rarely needed

        parse_headers(otlp_headers, "--otlp-headers")
    search = {_CREDENTIALS[name]: value for name, value in credentials.items()}
    secrets = {SLACK.parameter: slack, "ElasticsearchSecretId": search}
    if otlp_headers:
        secrets["OtlpSecretId"] = {"otlp_headers": otlp_headers}
    return {parameter: values for parameter, values in secrets.items() if values}


setup.add_command(batch_instances)
