"""The file of ``taskdef resize --write-sizes``: the sizes that would be registered, for definitions
that read them.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from profiler.aws_account.planned_family import PlannedFamily
from profiler.cli.printing import size_text, warn
from profiler.cli.resize_rows import decision_of, plans_with_new_revision
from profiler.core.errors import TaskProfilerError
from profiler.core.text import as_sentence
from profiler.record.record_model import TaskSize
from profiler.record.units import format_count
from profiler.task_definitions.definition_texts import read_bytes, write_definition
from profiler.task_definitions.size_changes import definition_size
from profiler.task_definitions.sizes_file import SizesFile, read_sizes, source_sizes


class SizesTarget(Struct, frozen=True, kw_only=True):
    """The file. It is read when it is written: while the families were read, which takes minutes,
    somebody else may have changed it.
    """

    path: Path

    def write_sizes_of_plan(self, planned: Sequence[PlannedFamily]) -> list[PlannedFamily]:
        """Write the sizes of the plan, and say which of them cannot be written.

        Returns the families whose sizes are new in the file, which is left alone without one.
        Raises TaskProfilerError.
        """
        before = self.read_sizes_file()
        after = before
        written = []
        for family_plan, sizes in self._new_sizes(before, plans_with_new_revision(planned)):
            after = after.with_size(family_plan.family, sizes, _written_reason(family_plan))
            written.append(family_plan)
        if written:
            write_definition(self.path, after.file_content, remedy="name another file")
            warn(f"{self.path} was changed: {format_count(len(written), 'family')}.")
        return written

    def read_sizes_file(self) -> SizesFile:
        """What the file has, if it exists. Raises TaskProfilerError for something else."""
        try:
            self.path.stat()
        except FileNotFoundError:
            return SizesFile()
        except OSError:
            pass  # the reading says why
        return read_sizes(read_bytes(self.path, "sizes, which may be new"), str(self.path))

    def _new_sizes(
        self, before: SizesFile, planned: Sequence[PlannedFamily]
    ) -> Iterator[tuple[PlannedFamily, Mapping[str, object]]]:
        for family_plan in planned:
            family = family_plan.family
            present = family_plan.document.definition
            try:
                sizes = source_sizes(present, family_plan.changed.definition)
            except TaskProfilerError as error:
                warn(f"{family}: {error}")
                continue
            in_file = before.size_of(family)
            if before.has_sizes(family, sizes):
                warn(f"{family}: {self.path} has this size, which is not deployed yet.")
            elif in_file is None or in_file == definition_size(present):
                yield family_plan, sizes
            else:
                warn(_other_size_sentence(family_plan, self.path, in_file))


def open_sizes_target(file: str) -> SizesTarget:
    """The file, if it can be written. Raises TaskProfilerError for one that has something else."""
    target = SizesTarget(path=Path(file))
    target.read_sizes_file()
    if not target.path.resolve().parent.is_dir():
        raise TaskProfilerError(
            f"{file} cannot be written, because its folder does not exist: name another file."
        )
    return target


def _written_reason(planned: PlannedFamily) -> str:
    """The reason, and what changes in containers."""
    sentences = [as_sentence(decision_of(planned).reason), *planned.changed.changes]
    return " ".join(sentences)


def _other_size_sentence(planned: PlannedFamily, path: Path, in_file: TaskSize) -> str:
    """What somebody has set and not deployed is no size that the runs have judged."""
    return (
        f"{planned.family}: {path} has {size_text(in_file)}, and {planned.revision} another size: "
        "deploy it, or remove the family from the file."
    )
