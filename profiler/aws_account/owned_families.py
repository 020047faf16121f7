"""Families that the rollout of the monitor leaves to the stack of CloudFormation that owns them."""

from collections.abc import Callable

from msgspec.structs import replace

from profiler.aws_account.cloudformation_owners import CloudFormationOwners
from profiler.aws_account.planned_family import PlannedFamily
from profiler.aws_account.size_before import EarlierRevisions
from profiler.core.errors import TaskProfilerError
from profiler.task_definitions.containers import read_containers
from profiler.task_definitions.definition_json import ChangedDefinition, TaskDefinitionDocument


def left_to_owner(
    planned: PlannedFamily,
    document: TaskDefinitionDocument,
    owners: CloudFormationOwners,
    describe: Callable[[str], bytes],
) -> PlannedFamily:
    """The plan of a new revision of ``document``, which changes nothing that a stack owns. What may
    be owned is left alone, too. ``describe`` reads earlier revisions.
    """
    arns = EarlierRevisions(planned.family, document, describe).owned_arns()
    if planned.action == "remove monitor":  # what we registered may be undone
        arns = iter((planned.revision_arn,))
    try:
        stack = document.stack or owners.of_definition(arns)
    except TaskProfilerError as error:
        return replace(
            planned,
            problems=(*planned.problems, str(error)),
            obstacle=planned.obstacle or str(error),
        )
    if stack is None:
        return planned
    note = (
        f"The stack {stack} of CloudFormation owns it: change its template "
        "(docs/task-definitions.md), or its next deployment undoes a new revision."
    )
    same = ChangedDefinition(
        definition=document.definition,
        containers=read_containers(document.definition),
        batch=planned.changed.batch,
    )
    return PlannedFamily(
        family=planned.family, action="refused", notes=(note,), document=document, changed=same
    )
