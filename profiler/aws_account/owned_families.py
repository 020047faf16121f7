"""Families that a rollout leaves to who owns them: a stack of CloudFormation, a service that
registers their definitions, or a person who has taken a monitor back.
"""

from collections.abc import Callable
from operator import attrgetter

from msgspec.structs import replace

from profiler.aws_account.cloudformation_owners import CloudFormationOwners
from profiler.aws_account.planned_family import PlannedFamily
from profiler.aws_account.registered_definitions import AccountDefinitions, is_definition_missing
from profiler.aws_account.size_before import EarlierRevisionReader
from profiler.core.ecs_terms import revision_number, revision_text
from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import known
from profiler.record.family_owner import FamilyOwner, sentence_on_owner
from profiler.task_definitions.containers import monitor_of, read_containers
from profiler.task_definitions.definition_difference import Part
from profiler.task_definitions.definition_json import (
    ChangedDefinition,
    TaskDefinitionDocument,
    read_described,
)


def plan_left_to_owner(
    planned: PlannedFamily,
    document: TaskDefinitionDocument,
    owners: CloudFormationOwners,
    describe: Callable[[str], bytes],
) -> PlannedFamily:
    """The plan of a new revision of ``document``, which changes nothing that a stack owns. What may
    be owned is left alone, too. ``describe`` reads earlier revisions.
    """
    arns = EarlierRevisionReader(planned.family, document, describe).owned_arns()
    if planned.action == "remove monitor":  # what we registered may be undone
        arns = iter((planned.revision_arn,))
    try:
        stack = document.stack or owners.stack_of_definition(arns)
    except TaskProfilerError as error:
        return replace(
            planned,
            problems=(*planned.problems, str(error)),
            obstacle=planned.obstacle or str(error),
        )
    if not stack:
        return planned
    note = (
        f"The stack {stack} of CloudFormation owns it: change its template "
        "(docs/task-definitions.md), or its next deployment undoes a new revision."
    )
    return _plan_left_alone(planned.family, document, note, batch=planned.changed.batch)


def plan_left_to_person(
    planned: PlannedFamily, document: TaskDefinitionDocument, account: AccountDefinitions
) -> PlannedFamily:
    """The plan of adding a monitor, which changes nothing if somebody has deregistered a revision
    with a monitor, so that this older one is the newest again. Raises TaskProfilerError if the
    deregistered revisions cannot be read.
    """
    number = account.newest_withdrawn(planned.family)
    if number is None or number <= (revision_number(revision_text(document.arn or "")) or 0):
        return planned
    name = f"{planned.family}:{number}"
    try:
        withdrawn = read_described(account.describe, name).definition
    except TaskProfilerError as error:
        if is_definition_missing(error):  # it was deleted meanwhile
            return planned
        raise
    if monitor_of(withdrawn, known(attrgetter("image"), planned.changed.monitor)) is None:
        return planned
    note = f"Somebody deregistered {name}, which had the monitor: name the family to add it again."
    return _plan_left_alone(planned.family, document, note, batch=planned.changed.batch)


def plan_left_to_service(
    family: str, document: TaskDefinitionDocument, owner: FamilyOwner, part: Part
) -> PlannedFamily:
    """The plan that leaves the family to the service that owns it."""
    planned = _plan_left_alone(family, document, sentence_on_owner(owner, part))
    return replace(planned, owner=owner)


def _plan_left_alone(
    family: str, document: TaskDefinitionDocument, note: str, *, batch: str = ""
) -> PlannedFamily:
    same = ChangedDefinition(
        definition=document.definition,
        containers=read_containers(document.definition),
        batch=batch,
    )
    return PlannedFamily(
        family=family, action="refused", notes=(note,), document=document, changed=same
    )
