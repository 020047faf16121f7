"""The functions' settings and secrets.

A SettingsError has the variable, or the secret's name, never a value.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from profiler.core.aws_clients import bounded_config
from profiler.core.aws_signature import NO_SERVERLESS, SERVERLESS, signing_service
from profiler.core.ecs_terms import cluster_name
from profiler.core.errors import UsageError
from profiler.core.index_names import DEFAULT_PREFIX, IndexNames
from profiler.core.json_levels import within_levels
from profiler.core.notice_channels import EVENT_BUS
from profiler.core.text import split_names
from profiler.core.web_addresses import HALF_A_SIGN_IN
from profiler.forwarder.invocation import ForwarderError, SettingsError, call_collecting_error
from profiler.record.family_identity import matches_any
from profiler.record.line_trust import (
    InstanceMonitorGroup,
    TrustedGroups,
    read_trusted_globs,
)
from profiler.schedules.schedule_model import DEFAULT_GRACE_MINUTES

if TYPE_CHECKING:  # only an export imports it
    from profiler.otlp.otlp_settings import Targets

Engine = Literal["elasticsearch", "opensearch"]
# The subjects that NOTIFY selects: ended tasks by their outcome, and notices of tasks that run.
Subject = Literal["success", "failure", "running"]

ALL_SUBJECTS: frozenset[Subject] = frozenset(("success", "failure", "running"))
_DEFAULT_WAIT_SECONDS = 20.0
_TRUE = ("true", "1", "yes")
_FALSE = ("", "false", "0", "no")
# Valid on both engines at the start of an index name.
_PREFIX = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}", re.ASCII)
_LOG_GROUP_ARN = re.compile(r"arn:[^:]+:logs:[^:]+:(\d+):log-group:([^:*]+)(?::\*)?", re.ASCII)
_SECRET_CACHE_SECONDS = 300
_PARAMETER_PREFIX = "ssm:"
_EXPORT_SETTINGS = (
    "OTLP_ENDPOINT",
    "OTLP_TRACES_ENDPOINT",
    "OTLP_LOGS_ENDPOINT",
    "OTLP_METRICS_ENDPOINT",
    "OTLP_HEADERS",
    "OTLP_PROTOCOL",
)
_Choice = TypeVar("_Choice", bound=str)
_Secret = TypeVar("_Secret")
_Result = TypeVar("_Result")
# Returns the text of the secret with a name. Raises SettingsError.
FetchSecret: TypeAlias = Callable[[str], str]


class Credentials(Struct, frozen=True, kw_only=True):
    """The credentials for the search cluster: none, or one kind.

    ``aws``: the service for which requests are signed.
    """

    api_key: str | None = None
    username: str | None = None
    password: str | None = None
    aws: str | None = None

    @property
    def user_and_password(self) -> tuple[str, str] | None:
        if not (self.username and self.password):
            return None
        return (self.username, self.password)

    def __repr__(self) -> str:
        """The kind of sign-in, without its secrets."""
        if self.api_key:
            kind = "api key"
        elif self.user_and_password:
            kind = "basic"
        elif self.aws:
            kind = "aws"
        else:
            kind = "none"
        return f"Credentials({kind})"


class ForwarderSettings(Struct, frozen=True, kw_only=True):
    """The settings of the search cluster and of ``forward_logs``.

    ``secret_id`` is the credentials' secret.
    """

    url: str | None = None
    engine: Engine = "elasticsearch"
    credentials: Credentials = Credentials()
    secret_id: str | None = None
    region: str | None = None
    ca_file: str | None = None
    indices: IndexNames = IndexNames()
    forward_log_lines: bool = False
    failed_items_queue_url: str | None = None
    kibana_url: str | None = None
    trusted_groups: TrustedGroups = TrustedGroups()

    @property
    def has_cluster(self) -> bool:
        """Whether a search cluster is set."""
        return bool(self.url)

    @property
    def cluster_source_argument(self) -> str | None:
        """The cluster as a SOURCE of the option ``--from``."""
        if not self.url:
            return None
        prefix = self.indices.prefix
        path = "" if prefix == DEFAULT_PREFIX else f"/{prefix}"
        return f"{self.url.rstrip('/')}{path}"


class NoticeSettings(Struct, frozen=True, kw_only=True):
    """The settings of notices.

    ``log_lines``: of the batch in a failure's. A schedule that did not run is a failure.
    ``batch_jobs``: the attempts of jobs of AWS Batch have none, but each job one.
    """

    subjects: frozenset[Subject] = ALL_SUBJECTS
    families: tuple[str, ...] = ()
    services: bool = False
    unusual_as_failures: bool = False
    report_wait_seconds: float = _DEFAULT_WAIT_SECONDS
    kibana_url: str | None = None
    event_bus_name: str | None = None
    log_lines: int = 0
    batch_jobs: bool = False

    def selects(self, subject: Subject, family: str) -> bool:
        """Whether NOTIFY and NOTIFY_FAMILIES select this."""
        return subject in self.subjects and matches_any(family, self.families)


# Of settings that cannot be read: nothing is selected.
NO_NOTICES: Final = NoticeSettings(subjects=frozenset())


def read_notice_settings(environment: Mapping[str, str]) -> NoticeSettings:
    """Read the settings of notices. Invalid settings of the search cluster do not affect them."""
    return NoticeSettings(
        subjects=_read_subjects(split_names(environment.get("NOTIFY", ""))),
        families=_read_globs(environment, "NOTIFY_FAMILIES"),
        services=_read_boolean(environment, "NOTIFY_SERVICES"),
        unusual_as_failures=_read_boolean(environment, "NOTIFY_UNUSUAL"),
        report_wait_seconds=_read_number(
            environment, "REPORT_WAIT_SECONDS", _DEFAULT_WAIT_SECONDS, (0, 600.0), "seconds"
        ),
        kibana_url=_read_text(environment, "KIBANA_URL").rstrip("/") or None,
        event_bus_name=_read_text(environment, EVENT_BUS.setting) or None,
        log_lines=int(_read_number(environment, "NOTIFY_LOG_LINES", 5, (0, 20), "lines")),
        batch_jobs=read_batch_jobs(environment),
    )


def read_retry_settings(environment: Mapping[str, str]) -> tuple[tuple[str, ...], float]:
    """Read which families, as globs, are started again after they were killed for memory, and
    the largest memory.
    """
    max_memory_mb = _read_number(environment, "RETRY_MAX_MEMORY_MB", 61_440, (0, 1_048_576), "MiB")
    return _read_globs(environment, "RETRY_OUT_OF_MEMORY"), max_memory_mb


def read_key_table(environment: Mapping[str, str]) -> str | None:
    """Read the name of the table of keys; None without one."""
    return _read_text(environment, "IDEMPOTENCY_TABLE") or None


def read_grace_minutes(environment: Mapping[str, str]) -> float:
    """Read how long after its due time or window a task is missed.

    ECS shows stopped tasks for an hour.
    """
    return _read_number(
        environment, "SCHEDULE_GRACE_MINUTES", DEFAULT_GRACE_MINUTES, (1, 45), "minutes"
    )


def read_digest_zone(environment: Mapping[str, str]) -> tzinfo:
    """Read the zone of the morning message's times."""
    # Only for the morning message.
    from profiler.schedules.due_times import ScheduleExpressionError, read_zone

    try:
        return read_zone(_read_text(environment, "DIGEST_TIME_ZONE") or "UTC")
    except ScheduleExpressionError as error:
        raise SettingsError(f"DIGEST_TIME_ZONE is not usable. {error}") from None


def read_batch_jobs(environment: Mapping[str, str]) -> bool:
    """Read whether jobs of AWS Batch have one message each, in place of their attempts."""
    return _read_boolean(environment, "BATCH_JOBS")


def read_kept_days(environment: Mapping[str, str]) -> float:
    """Read how long the functions' log groups keep their lines."""
    return _read_number(environment, "LOG_RETENTION_DAYS", math.inf, (1, math.inf), "days")


def _read_text(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name, "").strip()


def _read_globs(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Read the globs of families, of which no name has a space."""
    globs = split_names(environment.get(name, ""))
    if any(glob.split() != [glob] for glob in globs):
        raise SettingsError(f"{name} must be names of families or globs, separated by commas.")
    return globs


def _read_subjects(words: Sequence[str]) -> frozenset[Subject]:
    named = {word.lower() for word in words}
    if not named <= {"all", *ALL_SUBJECTS}:
        raise SettingsError(
            "NOTIFY must be all, or a list of success, failure and running, separated by commas."
        )
    if "all" in named or not named:
        return ALL_SUBJECTS
    return frozenset(subject for subject in ALL_SUBJECTS if subject in named)


def _read_choice(
    environment: Mapping[str, str], name: str, default: _Choice, other: _Choice
) -> _Choice:
    value = _read_text(environment, name).lower() or default
    if value not in (default, other):
        raise SettingsError(f"{name} must be {default} or {other}.")
    return other if value == other else default


def _read_boolean(environment: Mapping[str, str], name: str) -> bool:
    value = _read_text(environment, name).lower()
    if value not in (*_TRUE, *_FALSE):
        raise SettingsError(f"{name} must be true or false.")
    return value in _TRUE


def _read_number(
    environment: Mapping[str, str],
    name: str,
    default: float,
    limits: tuple[float, float],
    unit: str,
) -> float:
    text = _read_text(environment, name)
    if not text:
        return default
    lowest, highest = limits
    try:
        number = float(text)
    except ValueError:
        number = -1
    if not lowest <= number <= highest:
        raise SettingsError(
            f"{name} must be a number of {unit} from {lowest:.0f} to {highest:.0f}."
        )
    return number


def _signing_service(url: str, environment: Mapping[str, str]) -> str | None:
    try:
        service = signing_service(url, environment)
    except UsageError as error:
        raise SettingsError(str(error)) from None
    if service == SERVERLESS:
        raise SettingsError(f"ELASTICSEARCH_URL is not usable. {NO_SERVERLESS}")
    return service


def read_settings(environment: Mapping[str, str]) -> ForwarderSettings:
    """Read the settings of the search cluster and of ``forward_logs``."""

    def text(name: str) -> str | None:
        return _read_text(environment, name) or None

    engine: Engine = _read_choice(environment, "SEARCH_ENGINE", "elasticsearch", "opensearch")
    prefix = text("INDEX_PREFIX") or DEFAULT_PREFIX
    if not _PREFIX.fullmatch(prefix):
        raise SettingsError(
            "INDEX_PREFIX cannot be the start of an index name: use lower-case letters, digits, "
            "'_', '-' and '.'."
        )
    credentials = Credentials(
        api_key=text("ELASTICSEARCH_API_KEY"),
        username=text("ELASTICSEARCH_USER"),
        password=text("ELASTICSEARCH_PASSWORD"),
        aws=_signing_service(text("ELASTICSEARCH_URL") or "", environment),
    )
    if bool(credentials.username) != bool(credentials.password):
        raise SettingsError(HALF_A_SIGN_IN)
    if credentials.aws and engine != "opensearch":
        raise SettingsError(
            "Requests are signed for OpenSearch only: set SEARCH_ENGINE=opensearch."
        )
    return ForwarderSettings(
        url=text("ELASTICSEARCH_URL"),
        engine=engine,
        credentials=credentials,
        secret_id=text("ELASTICSEARCH_SECRET_ID"),
        region=text("AWS_REGION") or text("AWS_DEFAULT_REGION"),
        ca_file=text("ELASTICSEARCH_CA_FILE"),
        indices=IndexNames(
            prefix=prefix, period=_read_choice(environment, "INDEX_PERIOD", "month", "day")
        ),
        forward_log_lines=_read_boolean(environment, "FORWARD_LOG_LINES"),
        failed_items_queue_url=text("FAILED_ITEMS_QUEUE_URL"),
        kibana_url=(text("KIBANA_URL") or "").rstrip("/") or None,
        trusted_groups=read_trusted_groups(environment),
    )


def read_trusted_groups(environment: Mapping[str, str]) -> TrustedGroups:
    """Read which log groups may speak for tasks although their streams are not these tasks'.

    The stack sets the ARN of its instance monitor's log group, its cluster and its family.
    """
    arn = _read_text(environment, "INSTANCE_MONITOR_LOG_GROUP")
    cluster = cluster_name(_read_text(environment, "INSTANCE_MONITOR_CLUSTER"))
    family = _read_text(environment, "INSTANCE_MONITOR_FAMILY") or None
    monitors: tuple[InstanceMonitorGroup, ...] = ()
    if arn and cluster:
        match = _LOG_GROUP_ARN.fullmatch(arn)
        if not match:
            raise SettingsError(
                "INSTANCE_MONITOR_LOG_GROUP must be the ARN of a log group: "
                "arn:aws:logs:REGION:ACCOUNT:log-group:NAME."
            )
        monitors = (
            InstanceMonitorGroup(
                account_id=match[1],
                log_group=match[2],
                cluster=cluster,
                family=family,
            ),
        )
    return TrustedGroups(instance_monitors=monitors, globs=read_trusted_globs(environment))


def has_export_address(environment: Mapping[str, str]) -> bool:
    """Whether an address for the export is set.

    Without one, nothing of ``profiler.otlp`` is imported.
    """
    return any(
        _read_text(environment, name) for name in _EXPORT_SETTINGS if name.endswith("_ENDPOINT")
    )


class _ExportSecret(Struct):
    otlp_headers: str


def read_export_targets(environment: Mapping[str, str], fetch: FetchSecret) -> "Targets":
    """Read the targets of the export of ended runs, and the headers in the secret of
    ``OTLP_SECRET_ID``.
    """
    from profiler.otlp.otlp_settings import read_targets

    secret_id = _read_text(environment, "OTLP_SECRET_ID")
    signs_for_aws = _read_boolean(environment, "OTLP_AWS_AUTH")
    values = {name: _read_text(environment, name) for name in _EXPORT_SETTINGS}
    if secret_id and not values["OTLP_HEADERS"]:
        values["OTLP_HEADERS"] = read_secret(
            secret_id, _ExportSecret, "JSON with otlp_headers", fetch
        ).otlp_headers
    try:
        targets = read_targets(values, signs_for_aws=signs_for_aws)
    except UsageError as error:
        raise SettingsError(str(error)) from None
    logs = targets.get("logs")
    if (
        not signs_for_aws
        or logs is None
        or any(name.lower() == "x-aws-log-group" for name, _ in logs.headers)
    ):
        return targets
    # CloudWatch Logs accepts log records only for a log stream; the function may write into its
    # own.
    own = (
        ("x-aws-log-group", environment.get("AWS_LAMBDA_LOG_GROUP_NAME", "")),
        ("x-aws-log-stream", environment.get("AWS_LAMBDA_LOG_STREAM_NAME", "")),
    )
    return {**targets, "logs": replace(logs, headers=(*logs.headers, *own))}


def read_secret(name: str, kind: type[_Secret], what: str, fetch: FetchSecret) -> _Secret:
    """Read a secret of this type."""
    try:
        return msgspec.json.decode(within_levels(fetch(name)), type=kind)
    except (msgspec.DecodeError, UnicodeError):
        # Not "from": the decoder's message may quote the secret.
        raise SettingsError(f"The secret {name} is not {what}.") from None


def call_with_secret(call: Callable[[FetchSecret], _Result]) -> _Result:
    """Make a call that needs a secret; if the service refuses it and the secret was changed
    meanwhile, once more.
    """
    used: dict[str, str] = {}

    def fetch(name: str) -> str:
        used[name] = fetch_secret(name)
        return used[name]

    try:
        return call(fetch)
    except ForwarderError as error:
        names = used if error.is_refusal else ()
        renewed = {
            name: call_collecting_error(partial(fetch_secret, name, is_renewed=True), [])
            or used[name]
            for name in names
        }
        if renewed in ({}, used):
            raise
    return call(fetch_secret)


def fetch_secret(name: str, *, is_renewed: bool = False) -> str:
    """Fetch the text of a Secrets Manager secret, or of a Parameter Store parameter for
    ``ssm:NAME``.
    """
    # Slow to import, and needed only for secrets.
    from aws_lambda_powertools.utilities import parameters
    from aws_lambda_powertools.utilities.parameters.constants import DEFAULT_PROVIDERS

    options: Any = {"max_age": _SECRET_CACHE_SECONDS, "force_fetch": is_renewed}
    try:
        if name.startswith(_PARAMETER_PREFIX):
            parameter = name.removeprefix(_PARAMETER_PREFIX)
            if "ssm" not in DEFAULT_PROVIDERS:
                DEFAULT_PROVIDERS["ssm"] = parameters.SSMProvider(boto_config=bounded_config())
            return str(parameters.get_parameter(parameter, decrypt=True, **options))
        if "secrets" not in DEFAULT_PROVIDERS:
            DEFAULT_PROVIDERS["secrets"] = parameters.SecretsProvider(boto_config=bounded_config())
        secret: str | bytes = parameters.get_secret(name, **options)
        return secret.decode() if isinstance(secret, bytes) else secret
    except parameters.GetParameterError as error:
        raise SettingsError(
            f"The secret {name} cannot be read ({type(error.__cause__ or error).__name__}): "
            "check its name and that the function's role may read it."
        ) from error


def read_credentials(name: str, fetch: FetchSecret) -> Credentials:
    """Read a secret: JSON with ``api_key``, or ``username`` and ``password``.

    An empty value counts as unset.
    """
    secret = read_secret(name, Credentials, "JSON with api_key, or username and password", fetch)
    credentials = Credentials(
        api_key=secret.api_key or None,
        username=secret.username or None,
        password=secret.password or None,
    )
    if not (credentials.api_key or credentials.user_and_password):
        raise SettingsError(
            f"The secret {name} contains neither api_key, nor username and password."
        )
    return credentials
