"""The sizes that ``taskdef resize --apply`` writes into the JSON of task definitions, and names in
files that hold code.

Several definitions may be of one family, such as those of two stages. The runs of one stage say
nothing about the size of the other one, so a family's runs are read once for each place where its
definitions log.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.planned_family import PlannedFamily
from profiler.aws_account.resize_plan import SizePlanner
from profiler.cli.resize_runs import RecentRunsReader
from profiler.core.json_fields import text_or_none
from profiler.core.optional_math import known_values
from profiler.runs.past_runs.log_places import DefinedLogPlaces, LogOptions, log_options_of
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.resize_limits import ResizePolicy
from profiler.task_definitions.definition_json import ChangedDefinition, TaskDefinitionDocument
from profiler.task_definitions.definition_texts import change_text, read_bytes, read_definitions
from profiler.task_definitions.written_sizes import WrittenSize, is_only_read, written_sizes

# Where each family logs; None if any place is as good as another.
_Stage = dict[str, LogOptions | None]


class FilesPlan(Struct, frozen=True, kw_only=True):
    """A plan for each definition in the files, and the new contents of the files that change.

    ``counted`` has only one plan of those that share the runs of a family. ``only_read`` are the
    files that never change, and ``unnamed`` says which of their definitions have no plan.
    """

    planned: Sequence[PlannedFamily]
    counted: Sequence[PlannedFamily]
    contents: Mapping[str, bytes]
    only_read: Sequence[str]
    unnamed: Sequence[str]


class _PlannedInFile(Struct, frozen=True, kw_only=True):
    """The plan of a definition; ``stage`` None: it has no family whose runs were read."""

    file: str
    stage: int | None
    plan: PlannedFamily


def plan_sizes_in_files(
    files: Sequence[str], runs: RecentRunsReader, policy: ResizePolicy, prices: PriceOverrides
) -> FilesPlan:
    """Plan the sizes of the definitions in the files. Raises TaskProfilerError."""
    found: list[WrittenSize] = []
    texts: dict[str, bytes] = {}
    for file in dict.fromkeys(files):
        data = read_bytes(Path(file))
        if is_only_read(data, file):
            found += written_sizes(data, file)
        else:
            texts[file] = data
    written = [one for one in found if one.unnamed is None]
    definitions = [one.definition for one in written]
    for file, data in texts.items():
        definitions += [definition for definition, _ in read_definitions(data, file)]
    stages = _stages_of_families(definitions)
    plans = []
    for stage in stages:
        of_stage = runs.read_runs(tuple(stage), DefinedLogPlaces(stage.get))
        plans.append(
            SizePlanner(
                runs=of_stage.windows,
                policy=policy,
                price_overrides=prices,
                missing_runs=of_stage.why_runs_are_missing,
            )
        )
    without_runs = SizePlanner(runs={}, policy=policy, price_overrides=prices)
    planned: list[_PlannedInFile] = []

    def sized(definition: Mapping[str, object], file: str) -> ChangedDefinition:
        # str, for JSON, also of an intrinsic function.
        family = str(text_or_none(definition.get("family")) or "")
        stage = _stage_of(family, definition, stages)
        plans_of_stage = without_runs if stage is None else plans[stage]
        plan = plans_of_stage.plan_size(family, TaskDefinitionDocument(definition=definition))
        planned.append(_PlannedInFile(file=file, stage=stage, plan=plan))
        return ChangedDefinition(definition=plan.changed.definition)

    contents: dict[str, bytes] = {}
    for file, data in texts.items():
        changed = change_text(
            data, file, lambda definition, *_, file=file: sized(definition, file), keeps_form=True
        )
        if changed.is_changed:
            contents[file] = changed.after
    for one in written:
        definition = sized(one.definition, one.file).definition
        hints = tuple(one.edit_hints(definition))
        last = planned[-1].plan
        planned[-1] = replace(planned[-1], plan=replace(last, notes=(*last.notes, *hints)))
    return FilesPlan(
        planned=_plans_with_file_names(planned),
        counted=_one_plan_per_family(planned),
        contents=contents,
        only_read=tuple(dict.fromkeys(one.file for one in found)),
        unnamed=known_values(one.unnamed for one in found),
    )


def _stages_of_families(definitions: Iterable[Mapping[str, object]]) -> Sequence[_Stage]:
    """The places of all families, with as few repetitions of a family as its places need."""
    stages: list[_Stage] = []
    for definition in definitions:
        family = text_or_none(definition.get("family"))
        if not family:
            continue
        options = log_options_of(definition)
        at = _stage_of(family, definition, stages)
        if at is not None:
            known = stages[at][family]
            stages[at][family] = options if known is None else known
            continue
        for stage in stages:
            if family not in stage:
                stage[family] = options
                break
        else:
            stages.append({family: options})
    return stages


def _stage_of(
    family: str, definition: Mapping[str, object], stages: Sequence[_Stage]
) -> int | None:
    """The first stage in which the family logs as in the definition; None if there is none."""
    options = log_options_of(definition)
    for number, stage in enumerate(stages):
        if family in stage and (None in (options, stage[family]) or stage[family] == options):
            return number
    return None


def _plans_with_file_names(planned: Sequence[_PlannedInFile]) -> list[PlannedFamily]:
    """The plans; those of a family with several definitions name their files."""
    definitions = Counter(one.plan.family for one in planned)
    named = []
    for one in planned:
        notes = one.plan.notes
        if definitions[one.plan.family] > 1:
            notes = (*notes, f"This is the family in {one.file}.")
        named.append(replace(one.plan, notes=notes))
    return named


def _one_plan_per_family(planned: Sequence[_PlannedInFile]) -> list[PlannedFamily]:
    """One plan of each family in a stage: one that changes its size, if there is one."""
    counted: dict[tuple[str, int | None], PlannedFamily] = {}
    without_runs = []
    for one in planned:
        key = (one.plan.family, one.stage)
        if one.stage is None:
            without_runs.append(one.plan)
        elif key not in counted or not counted[key].is_new_revision:
            counted[key] = one.plan
    return [*counted.values(), *without_runs]
