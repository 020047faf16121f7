"""The roles with which schedules and rules start tasks or submit jobs: many allow one revision
alone, so that a target which is moved to another one would start nothing.

https://docs.aws.amazon.com/AmazonECS/latest/developerguide/CWE_IAM_role.html
"""

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.report_paths import READ_POLICIES, ReportPaths
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.core.aws_clients import ACCESS_DENIED, error_code
from profiler.core.ecs_terms import revision_number, revision_text
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import text
from profiler.core.optional_math import first_known


class StarterRoles:
    """Reads the policies of each role once. Methods raise TaskProfilerError if it cannot."""

    def __init__(self, open_client: OpenClient) -> None:
        self._paths = ReportPaths(open_client)
        self._refused: dict[str, BaseException] = {}  # AWS's refusals to read a role

    def refusal(self, target: ScheduledTarget, revision_arn: str) -> str | None:
        """Why a pinned target could not start this revision, in words; None if its role's policies
        allow it, may allow it, or do not even allow the present one: then they are not all that
        decides.
        """
        present = target.pinned_revision
        head = revision_arn.rpartition("/")[0]
        what = f"The {target.title} was not moved"
        return present and self._refusal(target, f"{head}/{present}", revision_arn, what)

    def refusal_of_newer(self, target: ScheduledTarget, revision_arn: str) -> str | None:
        """Why a target that starts the newest revision, which is this one, could start no newer
        one.
        """
        number = first_known(revision_number(revision_text(revision_arn)), 0)
        newer = f"{revision_arn.rpartition(':')[0]}:{number + 1}"
        what = "It is unknown whether schedules may start a new revision"
        return self._refusal(target, revision_arn, newer, what)

    def _refusal(
        self, target: ScheduledTarget, present_arn: str, new_arn: str, what: str
    ) -> str | None:
        role_arn = text(target.started.get("RoleArn")) or ""
        role = role_arn.rpartition("/")[2]
        if not role or role_arn.split(":")[4:5] != new_arn.split(":")[4:5]:
            return None  # a role of another account cannot be read here
        action = "batch:SubmitJob" if target.is_of_job else "ecs:RunTask"
        try:
            with aws_errors(f"{what}: its role {role} could not be read", READ_POLICIES):
                if role in self._refused:
                    raise self._refused[role]
                if self._paths.allows(role, action, new_arn) != "no":
                    return None
                if self._paths.allows(role, action, present_arn) == "no":
                    return None
        except TaskProfilerError as error:
            cause = error.__cause__
            if isinstance(cause, Exception) and error_code(cause) in ACCESS_DENIED:
                self._refused[role] = cause
            raise
        head, _, new = new_arn.rpartition("/")
        present = present_arn.rpartition("/")[2]
        return (
            f"its role {role} allows {present} and not {new}: allow {action} on "
            f"{head}/{target.family}:*"
        )
