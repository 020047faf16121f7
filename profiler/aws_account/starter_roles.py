"""The roles with which schedules and rules start tasks or submit jobs: many allow one revision
alone, so that a target which is moved to another one would start nothing.

https://docs.aws.amazon.com/AmazonECS/latest/developerguide/CWE_IAM_role.html
"""

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.report_paths import READ_POLICIES, ReportPaths
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.core.json_fields import text


class StarterRoles:
    """Reads the policies of each role once."""

    def __init__(self, open_client: OpenClient) -> None:
        self._paths = ReportPaths(open_client)

    def refusal(self, target: ScheduledTarget, revision_arn: str) -> str | None:
        """Why a target could not start this revision any more, in words; None if its role's
        policies allow it, may allow it, or do not even allow the present one: then they are not all
        that decides. Raises TaskProfilerError if the role cannot be read.
        """
        role = (text(target.started.get("RoleArn")) or "").rpartition("/")[2]
        present = target.pinned_revision
        if not (role and present):
            return None
        action = "batch:SubmitJob" if target.is_of_job else "ecs:RunTask"
        head, _, new = revision_arn.rpartition("/")
        what = f"The {target.title} was not moved: its role {role} could not be read"
        with aws_errors(what, READ_POLICIES):
            if self._paths.allows(role, action, revision_arn) != "no":
                return None
            if self._paths.allows(role, action, f"{head}/{present}") == "no":
                return None
        everyone = f"{head.rpartition(':')[2]}/{target.family}:*"
        return f"its role {role} allows {present} and not {new}: allow {action} on {everyone}"
