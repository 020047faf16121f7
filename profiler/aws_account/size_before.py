"""What the earlier revisions of a family say about its size: what our tags remember, and whether
they are true.

A tag can be written by everybody who may tag a definition, so what it says is compared with the
revision that it names.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.registered_definitions import may_definition_exist
from profiler.core.ecs_terms import MONITOR_NAME, revision_number, revision_text
from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import first_known, known
from profiler.core.text import words_if_known
from profiler.record.record_model import TaskSize
from profiler.sizing.fargate_sizes import LEGAL_SIZES, Size
from profiler.sizing.sized_revision import (
    RESIZED_FROM,
    RESTORED_OVER,
    REVERTED_FROM,
    SizeBefore,
    SizedRevision,
    parse_size_before_tag,
)
from profiler.task_definitions.containers import read_containers
from profiler.task_definitions.definition_difference import difference
from profiler.task_definitions.definition_json import TaskDefinitionDocument, read_described
from profiler.task_definitions.job_as_task_definition import (
    LEAST_MB,
    is_job_definition,
    is_on_fargate,
)
from profiler.task_definitions.size_changes import definition_size

# The revisions of ours that are followed back to one that is not ours, and those before them that
# are named without being read.
_OWN_REVISIONS = 4
_UNREAD_REVISIONS = 8


class SizeBeforeOurs(Struct, frozen=True, kw_only=True):
    """The size before ours, with the definition that had it; None: it was deleted."""

    size: TaskSize
    definition: Mapping[str, object] | None = None


class EarlierRevisionReader(Struct, frozen=True):
    """Reads revisions of one family before ``newest``.

    ``describe`` returns ECS's response for ``family:revision``, or raises TaskProfilerError.
    """

    family: str
    newest: TaskDefinitionDocument
    describe: Callable[[str], bytes]

    @property
    def newest_number(self) -> str:
        """The newest revision's."""
        return revision_text(self.newest.arn or "")

    def arn_of_revision(self, revision: str) -> str:
        return f"{(self.newest.arn or '').rpartition(':')[0]}:{revision}"

    def read_revision(self, revision: str) -> TaskDefinitionDocument | None:
        """An earlier revision; None if it was deleted, or not read because of the limit of reads.

        Raises TaskProfilerError if AWS may return it later.
        """
        name = f"{self.family}:{revision}"
        try:
            return read_described(self.describe, name)
        except TaskProfilerError as error:
            if may_definition_exist(error):
                raise
            return None

    def find_old_size(self) -> SizeBeforeOurs:
        """The size to which the newest revision can be put back. Raises TaskProfilerError."""
        tag = self.newest.tags.get(RESIZED_FROM)
        before = parse_size_before_tag(tag)
        if before is None:
            said = words_if_known("{!r} in the tag", tag) or "no tag"
            raise TaskProfilerError(
                f"The revision {self.family}:{self.newest_number} has {said} {RESIZED_FROM}, so "
                f"no size "
                "before is known: register the size that it had."
            )
        shown = _size_text(before.size)
        old = self.read_revision(before.revision)
        if old is not None and definition_size(old.definition) != before.size:
            raise TaskProfilerError(
                f"The tag {RESIZED_FROM} says {shown}, but {self.family}:{before.revision} has "
                f"{_size_text(definition_size(old.definition))}, so somebody changed the tag: set "
                "the size by hand."
            )
        obstacle = self._why_size_is_impossible(before.size, is_known=old is not None)
        if obstacle:
            raise TaskProfilerError(
                f"The tag {RESIZED_FROM} says {shown}, {obstacle}: set the size by hand."
            )
        number = first_known(revision_number(self.newest_number), math.inf)
        if int(before.revision) >= number:
            raise TaskProfilerError(
                f"The tag {RESIZED_FROM} names {self.family}:{before.revision}, which is "
                "not an earlier revision, so somebody changed the tag: set the size by hand."
            )
        return SizeBeforeOurs(size=before.size, definition=known(attrgetter("definition"), old))

    def _why_size_is_impossible(self, size: TaskSize, *, is_known: bool) -> str | None:
        """Why nothing can have a size, in words; on EC2, ``is_known``: the old revision has it."""
        vcpu = size.vcpu or 0
        memory_mb = size.memory_mb or 0
        definition = self.newest.definition
        if not is_job_definition(definition) or is_on_fargate(definition):
            is_legal = Size(vcpu, memory_mb) in LEGAL_SIZES
            return None if is_legal else "which Fargate does not have"
        is_whole = vcpu >= 1 and float(vcpu).is_integer()
        if is_known or (is_whole and memory_mb >= LEAST_MB):
            return None
        return f"and a job on EC2 has whole vCPUs and at least {LEAST_MB} MiB"

    def owned_arns(self) -> Iterator[str]:
        """The newest revision, and those before it back to one that is not ours.

        A revision is ours by its size tag, or if it differs from the one before it by the monitor
        alone. Before one that could not be read, any may be the last that is not ours: some are
        named, too.
        """
        yield self.arn_of_revision(self.newest_number)
        number = self.newest_number
        document = self.newest
        for _ in range(_OWN_REVISIONS):
            tag = _size_before_of_ours(document)
            before = first_known(known(attrgetter("revision"), tag), _number_before(number))
            earlier = known(self.read_revision, before)
            is_other = earlier is not None and not _is_same_with_monitor(document, earlier)
            if before is None or (tag is None and is_other):
                return
            yield self.arn_of_revision(before)
            number = before
            if earlier is None:
                break
            document = earlier
        last = revision_number(number) or 1
        for earlier_number in range(last - 1, max(last - 1 - _UNREAD_REVISIONS, 0), -1):
            yield self.arn_of_revision(str(earlier_number))

    def with_overwritten(
        self, revision: SizedRevision, tagged: Mapping[int, Mapping[str, str]]
    ) -> SizedRevision:
        """The newest revision, which has no tag of ours, with a size of ours that somebody has
        overwritten by the size before, or one of ours that has failed.

        ``tagged``: the tags of the family's revisions of ours.
        """
        own = self._last_own_revision(tagged)
        if own is None:
            return revision
        resized = parse_size_before_tag(tagged[own].get(RESIZED_FROM))
        if resized is None:
            return replace(
                revision, reverted_from=parse_size_before_tag(tagged[own].get(REVERTED_FROM))
            )
        document = self.read_revision(str(own))
        if document is None or resized.size != revision.size:
            return revision
        return replace(revision, overwritten=definition_size(document.definition))

    def find_withdrawn_revision(
        self, newest_inactive: int | None, seen: int | None, tagged: Mapping[int, Mapping[str, str]]
    ) -> str | None:
        """A revision after the newest active one that is gone, in words; None without one.

        ``newest_inactive`` is ECS's, and ``seen`` the newest that has run: of a deleted revision,
        only its runs are left.
        """
        number = revision_number(self.newest_number) or 0
        gone = max(newest_inactive or 0, seen or 0)
        reverted = parse_size_before_tag(self.newest.tags.get(REVERTED_FROM))
        if gone <= number or known(attrgetter("revision"), reverted) == str(gone):
            return None
        name = f"{self.family}:{gone}"
        if tagged.get(gone, {}).keys() & {RESIZED_FROM, REVERTED_FROM}:
            return f"{name}, which this command had registered"
        return name

    def _last_own_revision(self, tagged: Mapping[int, Mapping[str, str]]) -> int | None:
        """The last revision before the newest that got a size from us, and was not hidden at
        once by the copy of a deployment.
        """
        number = revision_number(self.newest_number) or 0
        hidden = {tags.get(RESTORED_OVER) for tags in tagged.values()}
        own = None
        for tagged_number, tags in sorted(tagged.items()):
            is_sized = RESIZED_FROM in tags or REVERTED_FROM in tags
            if tagged_number < number and is_sized and str(tagged_number) not in hidden:
                own = tagged_number
        return own


def _number_before(number: str) -> str | None:
    """The number of the revision before another one."""
    before = (revision_number(number) or 0) - 1
    return str(before) if before > 0 else None


def _is_same_with_monitor(
    document: TaskDefinitionDocument, earlier: TaskDefinitionDocument
) -> bool:
    """Whether a revision and an earlier one are the same but for the monitor, whatever the name of
    its image is.
    """
    containers = (*read_containers(document.definition), *read_containers(earlier.definition))
    images = (container.image for container in containers if container.name == MONITOR_NAME)
    image = next(images, None)
    return difference(document.definition, earlier.definition, image) != "other"


def _size_before_of_ours(document: TaskDefinitionDocument) -> SizeBefore | None:
    """The tag that a revision of ours has: the revision that it replaced."""
    resized = parse_size_before_tag(document.tags.get(RESIZED_FROM))
    return resized or parse_size_before_tag(document.tags.get(REVERTED_FROM))


def _size_text(size: TaskSize) -> str:
    return size.text or "no size"
