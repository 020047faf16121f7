"""Errors of AWS as sentences."""

from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError, ParamValidationError
from botocore.parsers import ResponseParserError

from profiler.aws_account.aws_errors import aws_errors
from profiler.core.errors import TaskProfilerError
from profiler.forwarder.stopped_task_reads import TaskDefinitionReader
from profiler.sinks import LogTarget, TransientFailure
from profiler.sinks.upload_failures import delivery_failure_of
from tests.cases import each_case

THROTTLED = (
    "ThrottlingException",
    "EC2ThrottledException",
    "KMSThrottling",
    "TooManyRequestsException",
    "SlowDown",
)


@pytest.mark.parametrize(
    "code", [*THROTTLED, "RequestLimitExceeded", "ProvisionedThroughputExceededException"]
)
def test_a_throttled_call_is_known_to_commands_to_the_forwarder_and_to_the_monitor(
    code: str,
) -> None:
    """Nobody has to repeat a command that repeats the call itself, as watch does, and no report
    is given up for it.
    """
    throttled = refused(code, "Rate exceeded")
    with pytest.raises(TaskProfilerError) as error, aws_errors("The list is unknown"):
        raise throttled
    assert str(error.value) == (
        f"The list is unknown: AWS returned {code} (Rate exceeded), because there are too many "
        "calls: wait a minute."
    )
    assert isinstance(
        delivery_failure_of(throttled, LogTarget(group="/ecs/a", stream="s")), TransientFailure
    )
    answers = Mock(side_effect=[throttled, {"taskDefinition": {"family": "etl"}}])
    ecs = Mock(describe_task_definition=answers)
    assert TaskDefinitionReader(ecs, print).describe_definition("arn", lambda: True) == {
        "family": "etl"
    }


REFUSED = (
    "User: arn:aws:iam::111122223333:user/dev is not authorized to perform: {0} on resource: * "
    "because no identity-based policy allows the {0} action"
)


def refused(code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "Read")


@each_case(
    ("raised", "permission", "said"),
    [
        (
            ResponseParserError("invalid XML: b'<!doctype html>hunter2'"),
            None,
            "is not one of AWS: check HTTPS_PROXY",
        ),
        (
            ParamValidationError(report="Invalid length: 0"),
            None,
            "It cannot be read: wrong name (Invalid length: 0).",
        ),
        (
            refused("AccessDenied", REFUSED.format("ecs:A")),
            "ecs:A and ecs:B",
            "ecs:A action): allow ecs:A and ecs:B.",
        ),
        (
            refused("AccessDenied", REFUSED.format("iam:PassRole")),
            "events:PutTargets",
            "action): allow iam:PassRole.",
        ),
        # Its name is the beginning of another one's.
        (
            refused("AccessDenied", REFUSED.format("iam:GetRole")),
            "iam:GetRolePolicy and iam:ListRolePolicies",
            "action): allow iam:GetRole.",
        ),
        (
            refused("AccessDenied", REFUSED.format("iam:GetRole")),
            None,
            "action): allow iam:GetRole.",
        ),
        (
            refused(
                "InvalidSignatureException", "Signature expired: 20261128T0015Z is now earlier"
            ),
            None,
            "earlier): the clock of this machine is wrong, so set it.",
        ),
        (
            refused("InvalidSignatureException", "The request signature does not match."),
            None,
            "check the credentials, or choose others with --profile.",
        ),
        (
            refused("LimitExceeded", "Maximum policy size of 10240 bytes exceeded for role jobs"),
            "iam:PutRolePolicy",
            "for role jobs): the role's inline policies are full, so remove what it does not need",
        ),
        (
            refused("LimitExceededException", "You've reached the limit on the number of vCPUs"),
            "ecs:RunTask",
            "vCPUs): wait until there is less, or ask AWS for a larger quota.",
        ),
        (
            refused("403", "Forbidden"),
            "s3:ListBucket",
            "AWS refused (403: Forbidden): allow s3:ListBucket.",
        ),
        (
            refused("404", "Not Found"),
            None,
            "AWS cannot find it (Not Found): check the name, --region and --profile.",
        ),
        (
            refused("ValidationException", "Only on the Standard log class."),
            None,
            "): read it by Logs Insights, or",
        ),
        (
            refused("InvalidOperationException", "It is of log-group-class X."),
            None,
            "X): read it by Logs Insights",
        ),
        (
            refused("ValidationError", "Template\nerror: x."),
            None,
            "It cannot be read: Template error: x.",
        ),
        (
            refused(
                "ClientException",
                "Too many concurrent attempts to create a new revision of the specified family.",
            ),
            "ecs:RegisterTaskDefinition",
            "family), because somebody else changes it at this moment: try again in a minute.",
        ),
        (
            refused("ValidationError", "The limit of concurrent queries is 30."),
            None,
            "It cannot be read: The limit of concurrent queries is 30.",
        ),
        (
            refused("ConcurrentModificationException", "Rule night was modified concurrently."),
            "events:PutTargets",
            "because somebody else changes it at this moment: try again in a minute.",
        ),
        (
            refused("KMS.DisabledException", "0f3c is disabled."),
            None,
            "DisabledException: 0f3c is disabled): check",
        ),
    ],
)
def test_an_error_is_a_sentence_with_the_permission_and_the_sentence_of_aws(
    raised: Exception, permission: str | None, said: str
) -> None:
    with pytest.raises(TaskProfilerError) as error, aws_errors("It cannot be read", permission):
        raise raised
    assert said in str(error.value)
    assert "hunter2" not in str(error.value)


NOT_ALLOWED = (
    "User: arn:aws-us-gov:sts::111122223333:assumed-role/ci/run is not authorized to perform: "
    "logs:PutLogEvents on resource: arn:aws-us-gov:logs:us-gov-west-1:111122223333:log-group:/ecs/a "
)
ORGANIZATION = " (the administrators of the organization can)"


@pytest.mark.parametrize(
    ("end", "remedy"),
    [
        ("because no identity-based policy allows the {} action", "allow {}{}"),
        (
            "with an explicit deny in a service control policy: arn:aws:organizations::1:policy/o/p",
            f"no other policy can allow that, so change the service control policy{ORGANIZATION}",
        ),
        (
            "with an explicit deny in an identity-based policy",
            "no other policy can allow that, so change the identity-based policy",
        ),
        (
            "with an explicit deny in a permissions boundary",
            "no other policy can allow that, so change the permissions boundary",
        ),
        (
            "because no permissions boundary allows the {} action",
            "allow {}{} in the permissions boundary, too",
        ),
        (
            "because no service control policy allows the {} action",
            f"allow {{}}{{}} in the service control policy, too{ORGANIZATION}",
        ),
        (
            "because no VPC endpoint policy allows the {} action",
            "allow {}{} in the VPC endpoint policy, too",
        ),
    ],
)
def test_the_policy_that_refuses_is_named(end: str, remedy: str) -> None:
    """For a command, and for the monitor that cannot write its report."""
    action = "logs:PutLogEvents"
    denied = refused("AccessDeniedException", NOT_ALLOWED + end.format(action))
    with pytest.raises(TaskProfilerError) as error, aws_errors("It cannot be read", action):
        raise denied
    assert str(error.value).endswith(f"): {remedy.format(action, '')}.")
    failure = delivery_failure_of(denied, LogTarget(group="/ecs/a", stream="s"))
    assert f"/ecs/a: {remedy.format(action, ' on it')} (" in str(failure)
