"""The deployment of the forwarder: code and template in a bucket, secrets by name, and the stack of both."""

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from profiler.account_setup.forwarder_zip import build_zip, fingerprint, forwarder_folder
from profiler.account_setup.stack_bucket import CodeBucket, default_bucket
from profiler.account_setup.stack_changes import ChangeSet, StackChanges
from profiler.account_setup.stack_parameters import changed_parameters, check_values, parameter_names, parse_parameters
from profiler.account_setup.stack_secrets import store_secret
from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.monitor_log_groups import LogGroups
from profiler.aws_account.stack_state import CODE_PREFIX, DEFAULT_STACK, StackState, obstacle, read_state
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.version import __version__

_TEMPLATE_PREFIX = "task-profiler/template-"
_HASH_DIGITS = 16
_CODE_PARAMETERS = ("CodeBucket", "CodeKey")
# The secret of each parameter is STACK/NAME.
_SECRETS = {"SlackSecretId": "slack", "ElasticsearchSecretId": "search", "OtlpSecretId": "otlp"}


class StackRequest(Struct, frozen=True, kw_only=True):
    """What is to be deployed.

    Attributes:
        name: The stack.
        bucket: The bucket for code and template; None: the stack's, else one of the account's own.
        zip_file: The code; None: it is built.
        parameters: ``Name=Value`` each.
        settings: Values of parameters by name, from options of their own.
        secrets: The values of each secret, by the parameter that gets the secret's name.
    """

    name: str = DEFAULT_STACK
    bucket: str | None = None
    zip_file: str | None = None
    parameters: tuple[str, ...] = ()
    settings: Mapping[str, str] = {}
    secrets: Mapping[str, dict[str, str]] = {}


class StackPlan(Struct, frozen=True, kw_only=True):
    """What a deployment does, known without changing anything.

    Attributes:
        state: The stack now.
        template: The template's text.
        code_key: The key of the code in the bucket.
        given: The values that are given now, by the parameter's name.
        secrets: The values of each secret, by the secret's name.
    """

    state: StackState
    template: str
    code_key: str
    given: Mapping[str, str]
    secrets: Mapping[str, dict[str, str]]

    @property
    def template_key(self) -> str:
        """The key of the template in the bucket."""
        digest = hashlib.sha256(self.template.encode()).hexdigest()
        return f"{_TEMPLATE_PREFIX}{digest[:_HASH_DIGITS]}.yaml"

    def effective(self, name: str) -> str:
        """The value of a parameter after the deployment; empty if it is the template's default."""
        return self.given.get(name, self.state.parameters.get(name, ""))


class StackDeployment:
    """Deploys what a request describes. Each method raises TaskProfilerError.

    Args:
        request: The request.
        open_client: Makes boto3's client of a service.
        changes: Changes the stack.
        on_step: Gets a sentence about each step.
    """

    def __init__(
        self, request: StackRequest, open_client: OpenClient, changes: StackChanges, on_step: Callable[[str], None]
    ) -> None:
        self._request = request
        self._open = open_client
        self._changes = changes
        self._on_step = on_step

    def plan(self) -> tuple[StackPlan, CodeBucket]:
        """Read the stack and the account. Raises UsageError for a wrong parameter before anything is read."""
        request = self._request
        template = (forwarder_folder() / "template.yaml").read_text()
        given = _given(request, parameter_names(template))
        check_values(template, given)
        code_key = _code_key(request.zip_file)
        state = read_state(self._open, request.name)
        problem = obstacle(state)
        if problem is not None:
            raise TaskProfilerError(problem)
        secrets = {}
        for parameter, values in request.secrets.items():
            name = f"{request.name}/{_SECRETS[parameter]}"
            present = given.get(parameter, state.parameters.get(parameter, ""))
            if present not in ("", name):
                raise TaskProfilerError(
                    f"The stack {request.name} reads these settings from {present}: change them there, or add "
                    f"--parameter {parameter}= to let it use {name}."
                )
            secrets[name] = values
            given[parameter] = name
        bucket = self._bucket(state)
        given |= {"CodeBucket": bucket.name, "CodeKey": code_key}
        plan = StackPlan(state=state, template=template, code_key=code_key, given=given, secrets=secrets)
        if plan.effective("ElasticsearchUrl") and plan.effective("Subscribe") != "account":
            self._check_groups(set(given.get("LogGroups", "").split(",")) - {""})
        return plan, bucket

    def _check_groups(self, names: Iterable[str]) -> None:
        """Refuse a group that does not exist: CloudFormation would fail after minutes, and roll back."""
        groups = LogGroups(self._open)
        missing = [name for name in sorted(names) if groups.exists(name) is False]
        if missing:
            raise TaskProfilerError(
                f"Log groups that are to be subscribed do not exist ({', '.join(missing)}): create them, or check "
                "--log-group and --region."
            )

    def _bucket(self, state: StackState) -> CodeBucket:
        sts = self._open("sts")
        with aws_errors("The account cannot be read", "sts:GetCallerIdentity"):
            account = sts.get_caller_identity()["Account"]
        chosen = self._request.bucket or state.parameters.get("CodeBucket")
        bucket = CodeBucket(chosen or default_bucket(account, sts.meta.region_name), account, self._open)
        if self._request.bucket is not None and not bucket.exists():
            raise TaskProfilerError(f"There is no bucket {bucket.name}: create it, or leave --bucket out.")
        return bucket

    def describe(self, plan: StackPlan, bucket: CodeBucket) -> Iterator[str]:
        """What the deployment would do, in sentences."""
        is_new, exists = plan.state.phase == "absent", bucket.exists()
        yield f"would {'use' if exists else 'create'} the bucket {bucket.name}"
        for key in (plan.code_key, plan.template_key):
            verb = "is there already" if exists and bucket.has(key) else "would be uploaded"
            yield f"s3://{bucket.name}/{key} {verb}"
        for name in plan.secrets:
            yield f"would store the secret {name}"
        yield f"would {'create' if is_new else 'update'} the stack {plan.state.name} (now {_version(plan.state)})"
        for name, value in plan.given.items():
            if name not in _CODE_PARAMETERS:
                yield f"  {name}={value}"
        kept = len([name for name in plan.state.parameters if name not in plan.given])
        if kept:
            yield f"  {kept} other parameters keep their values"

    def prepare(self, plan: StackPlan, bucket: CodeBucket) -> ChangeSet | None:
        """Upload code and template, and create a change set; None if nothing would change."""
        if not bucket.exists():
            bucket.create()
            self._on_step(f"created the bucket {bucket.name}")
        if not bucket.has(plan.code_key):
            bucket.put(plan.code_key, self._code())
            self._on_step(f"uploaded s3://{bucket.name}/{plan.code_key}")
        if not bucket.has(plan.template_key):
            bucket.put(plan.template_key, plan.template.encode())
            self._on_step(f"uploaded s3://{bucket.name}/{plan.template_key}")
        parameters = changed_parameters(parameter_names(plan.template), plan.given, plan.state.parameters)
        is_new = plan.state.phase == "absent"
        return self._changes.prepare(bucket.url(plan.template_key), parameters, is_new=is_new)

    def _code(self) -> bytes:
        if self._request.zip_file is not None:
            return _read_zip(self._request.zip_file)
        self._on_step("building the forwarder's code with pip (about ten seconds)")
        with tempfile.TemporaryDirectory(prefix="task-profiler-setup-") as folder:
            path = Path(folder) / "forwarder.zip"
            build_zip(path)
            return path.read_bytes()

    def store_secrets(self, plan: StackPlan) -> None:
        """Store the secrets. Running functions read a changed one within five minutes."""
        key_arn = plan.effective("SecretsKeyArn")
        for name, values in plan.secrets.items():
            self._on_step(f"{store_secret(self._open, name, values, key_arn)}: secret {name}")


def _given(request: StackRequest, names: tuple[str, ...]) -> dict[str, str]:
    given = parse_parameters(request.parameters, names)
    for name in (*request.settings, *request.secrets):
        if given.get(name):
            raise UsageError(f"--parameter {name} and the option for it are both given: leave one out.")
    return {**given, **request.settings}


def _code_key(zip_file: str | None) -> str:
    digest = fingerprint() if zip_file is None else hashlib.sha256(_read_zip(zip_file)).hexdigest()
    return f"{CODE_PREFIX}{__version__}-{digest[:_HASH_DIGITS]}.zip"


def _read_zip(path: str) -> bytes:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(
            f"--zip {path} cannot be read ({error.strerror}): leave it out, and the zip is built."
        ) from error
    if not data.startswith(b"PK"):
        raise UsageError(f"--zip {path} is not a zip file: use task-profiler-forwarder.zip of the release.")
    return data


def _version(state: StackState) -> str:
    if state.phase == "absent":
        return "absent"
    return f"version {state.version}" if state.version else "of an unknown version"
