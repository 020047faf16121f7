"""``task-profiler recommend``: recommends task sizes from past runs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

import click
from msgspec.structs import replace

from profiler.cli.options import (
    Number,
    PastRunsCommand,
    SourceOptions,
    family_arguments,
    flag,
    gathered,
    last_option,
    on_fargate_option,
    option,
    policy_options,
    source_options,
)
from profiler.cli.printing import (
    UNKNOWN,
    say,
    size_text,
    total_saving_text,
    value_text,
    warn,
    write_json_lines,
)
from profiler.cli.recommended_months import (
    basis_sentences,
    estimate_mark_of,
    month_text,
    months_of_families,
)
from profiler.cli.standard_streams import terminal_columns
from profiler.cli.styled_text import (
    EMPTY,
    INDENT,
    Line,
    Span,
    build_line,
    with_short_words,
    wrapped_lines,
    write_lines,
)
from profiler.cli.tables import Column, aligned_table
from profiler.cli.wiring.open_past_runs import open_source, price_overrides, run_filter
from profiler.core.clock import SystemClock
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.optional_math import known_values, sum_known
from profiler.core.text import did_you_mean
from profiler.record.family_identity import (
    PROOF_FAMILY,
    FamilyKey,
    PlaceColumn,
    family_labels,
    matches_any,
    place_columns,
)
from profiler.record.record_model import TaskSize
from profiler.record.units import (
    format_gpu_hours,
    format_percent,
    format_range,
    format_share,
    format_usd,
    format_usd_a_month,
)
from profiler.runs.past_runs.family_evidence import FoundFamilies, read_families
from profiler.runs.past_runs.run_lookup import no_run_sentence
from profiler.runs.past_runs.run_source import RunFilter, RunSource, is_pattern
from profiler.sizing.advice import Advice, advise_on_size
from profiler.sizing.advice_document import advice_document
from profiler.sizing.choose_size import SizePolicy
from profiler.sizing.evidence import Evidence
from profiler.sizing.job_grouping import Engine, JobsBy, JobsRow
from profiler.sizing.run_collector import LAST_RUNS
from profiler.sizing.size_options import SizeOption, idle_gpu_hours_per_month
from profiler.sizing.sizing_rules import AdviceVerdict, advice_verdict, size_words_without_saving
from profiler.sizing.workflow_engine_config import engine_config_lines

_COLUMNS = (
    Column("Runs", is_right=True, rank=2),
    Column("Current", rank=3),
    Column("Recommended"),
    Column("Saving", is_right=True, rank=1),
    Column("$ a month", is_right=True),
)
# The groups of a table of several families: what the runs say about the current size.
_VERDICTS: tuple[AdviceVerdict, ...] = get_args(AdviceVerdict)
_SIZES_COLUMNS = (
    Column("Size"),
    *(Column(title, is_right=True) for title in ("Times as long", "Run", "Month", "Saving")),
    Column("", folds=True),
)


@click.command(
    "recommend",
    cls=PastRunsCommand,
    epilog="Example: task-profiler recommend nightly-etl --from https://search:9200",
)
@family_arguments
@source_options
@last_option(10_000, LAST_RUNS, "Use the N newest runs of each family.")
@policy_options
@flag("--faster", "Recommend the next larger vCPU size to tasks that used all of their vCPUs.")
@on_fargate_option
@option(
    "--by jobs_by",
    "definition|name",
    "Rows of AWS Batch's jobs: one for each job definition, or for each name (without numbers, "
    "hashes and ids) and requested size; the default is by name where a definition's jobs ask for "
    "several sizes, or an engine registered it.",
    type=click.Choice(get_args(JobsBy)),
)
@option(
    "--format engine",
    "ENGINE",
    "Print only the lines that set the sizes of AWS Batch's jobs in the configuration of nextflow, "
    "snakemake, metaflow or cromwell.",
    type=click.Choice(get_args(Engine)),
)
@flag("--sizes with_sizes", "Also print the cost and the duration at each size.")
@flag("--json as_lines", "Print one JSON object per family instead of a table.")
@flag(
    "--check",
    "Exit with 3 if a family may run out of memory, or for a saving of at least --min-saving.",
)
@option(
    "--min-saving min_saving_percent",
    "PERCENT",
    "Minimum saving for --check.",
    type=Number(0, 100),
    default=10,
)
@option(
    "--min-saving-usd",
    "USD",
    "Also the minimum measured saving a month for --check.",
    type=Number(0, 1e9),
    default=0,
)
@gathered(SizePolicy, "policy")
@gathered(SourceOptions, "options")
def recommend(
    *,
    options: SourceOptions,
    last: int,
    policy: SizePolicy,
    on_fargate: str | None,
    jobs_by: JobsBy | None,
    engine: Engine | None,
    with_sizes: bool,
    as_lines: bool,
    check: bool,
    min_saving_percent: float,
    min_saving_usd: float,
) -> int:
    """Recommend task sizes based on past runs.

    FAMILY can be a shell pattern; the default is all families, without the reasons.
    Failed, stopped and killed runs are included.
    """
    if not check:
        _check_no_limits_of_check()
    if engine is not None:
        _check_format(jobs_by, as_lines=as_lines)
        jobs_by = "name"
    selection = run_filter(options)
    overrides = price_overrides(on_fargate)
    source = open_source(options)
    read = _read_families(source, selection, last, on_fargate, jobs_by)
    families_evidence = known_values(read.families.values())
    advices = [advise_on_size(evidence, policy, overrides) for evidence in families_evidence]
    now_ns = SystemClock().wall_ns()
    months = months_of_families(advices, read.tasks_read, source, options, now_ns)
    if months:
        advices = [
            advise_on_size(evidence, policy, overrides, month=months.get(evidence.family))
            for evidence in families_evidence
        ]
    advices.sort(key=lambda advice: -(advice.saving_usd_per_month or 0))
    if engine is not None:
        _write_engine_lines(engine, advices)
    elif as_lines:
        write_json_lines(map(advice_document, advices))
    elif advices:
        explained = advices if options.families or with_sizes else ()
        write_lines(
            _recommendation_lines(advices, explained, terminal_columns(), with_sizes=with_sizes)
        )
    if check and _print_problems(advices, min_saving_percent, min_saving_usd):
        return 3
    return 1 if check and not read.completeness.is_whole else 0


def _check_no_limits_of_check() -> None:
    """Raise UsageError for a limit without --check: whoever gives one waits for its exit code."""
    context = click.get_current_context()
    for name, text in (
        ("min_saving_percent", "--min-saving"),
        ("min_saving_usd", "--min-saving-usd"),
    ):
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(f"{text} needs --check: without it, no saving changes the exit code.")


def _check_format(jobs_by: JobsBy | None, *, as_lines: bool) -> None:
    """Raise UsageError for options that --format excludes."""
    if as_lines:
        raise UsageError("--format excludes --json: leave one of them out.")
    if jobs_by == "definition":
        raise UsageError("--format sets sizes by name: leave --by definition out.")


def _write_engine_lines(engine: Engine, advices: Sequence[Advice]) -> None:
    lines = engine_config_lines(engine, advices)
    for text in lines:
        say(text)
    if not lines:
        warn("No job needs another size than it asks for.")


def _print_problems(
    advices: Sequence[Advice], min_saving_percent: float, min_saving_usd: float
) -> bool:
    """Print a sentence for each family with a risk or a saving; return whether there is one."""
    labels = family_labels([advice.evidence.family for advice in advices])
    has_problem = False
    for advice in advices:
        problem = advice.risk_sentence or advice.possible_saving_sentence(
            min_saving_percent, min_saving_usd
        )
        if problem:
            has_problem = True
            warn(f"{labels[advice.evidence.family]} fails the check: {problem}.")
    return has_problem


def _read_families(
    source: RunSource,
    selection: RunFilter,
    last: int,
    on_fargate: str | None,
    jobs_by: JobsBy | None,
) -> FoundFamilies:
    """The families, of which those without runs or measurements are listed on standard error."""
    read = read_families(source, selection, last, on_fargate, jobs_by)
    if not read.families and selection.families and source.leaves_out_older:
        everyone = replace(selection, families=())
        all_read = read_families(source, everyone, last, on_fargate, jobs_by)
        named = _jobs_named(all_read.families, selection)
        if named:
            read = replace(all_read, families=named)
    for note in (*read.notes, source.reading):
        if note:
            warn(note)
    if not read.families:
        raise TaskProfilerError(no_run_sentence(source, selection))
    for name in sorted(set(selection.families) - {key.name for key in read.families}):
        if not is_pattern(name):
            known = [key.name for key in read.families]
            warn(f"No run of {name} in {source.place}.{did_you_mean([name], known)}")
    families = {
        key: evidence
        for key, evidence in read.families.items()
        if key.name != PROOF_FAMILY or key.name in selection.families
    }
    labels = family_labels(families.keys())
    for family, evidence in families.items():
        if evidence is None:
            warn(f"No run of {labels[family]} was measured, so its size cannot be recommended.")
    return replace(read, families=families)


def _jobs_named(
    families: Mapping[FamilyKey, Evidence | None], selection: RunFilter
) -> Mapping[FamilyKey, Evidence | None]:
    """The rows of jobs whose name, which no run has, is selected."""
    return {
        row: evidence
        for row, evidence in families.items()
        if isinstance(row, JobsRow) and matches_any(row.name, selection.families)
    }


def _header_sentences(advices: Sequence[Advice]) -> Iterator[str]:
    for region in {advice.evidence.on_fargate for advice in advices if advice.evidence.is_moved}:
        yield (
            f"Runs outside Fargate are treated as if they had run on Fargate in {region}: the "
            "machine counts as the current size unless the task has one, and whole seconds are "
            "billed, at least 60."
        )
    if any(advice.evidence.precision.is_by_minute for advice in advices):
        yield (
            "Container Insights: runs were sampled each minute. The monitor also sees short "
            "peaks and short runs."
        )


def _recommendation_lines(
    advices: Sequence[Advice], explained: Sequence[Advice], width: int | None, *, with_sizes: bool
) -> Iterator[Line]:
    """The table of the families, what follows from all of them, and the explained ones."""
    for header in _header_sentences(advices):
        yield from (*wrapped_lines(header, width), EMPTY)
    places = place_columns([advice.evidence.family for advice in advices])
    family = Column("Family", is_cut=True, is_name=True)
    columns = (family, *(Column(title) for title, _ in places), *_COLUMNS)
    rows = [*_family_rows(advices, places), *_total_rows(advices, places)]
    yield from aligned_table(columns, rows, width=width)
    labels = family_labels([advice.evidence.family for advice in advices])
    yield from _lines_below_table(advices, labels, width)
    for advice in explained:
        yield EMPTY
        name = labels[advice.evidence.family]
        if width is not None:
            name = with_short_words(name, width)
        yield from wrapped_lines(name, width, style="bold")
        if with_sizes:
            yield from _size_rows(advice, width)
        for reason in advice.reasons:
            yield from wrapped_lines(reason, width, f"{INDENT}- ")
        yield from _engine_config_lines(advice)
    if not explained:
        yield EMPTY
        yield from wrapped_lines("The same command with FAMILY gives the reasons.", width)
        for engine in _engines_of_changed_rows(advices):
            yield from wrapped_lines(
                f"task-profiler recommend --format {engine} prints the sizes as its configuration.",
                width,
            )
    if any(
        not advice.choice.is_fargate and advice.evidence.on_fargate is None for advice in advices
    ):
        if explained:
            yield EMPTY
        hint = (
            "--on-fargate REGION gives sizes and prices as if the runs outside Fargate had run "
            "there."
        )
        yield from wrapped_lines(hint, width)


def _engines_of_changed_rows(advices: Sequence[Advice]) -> Sequence[Engine]:
    """The engines of the rows whose sizes change."""
    engines: dict[Engine, None] = {}
    for advice in advices:
        row = advice.evidence.family
        if isinstance(row, JobsRow) and row.engine and engine_config_lines(row.engine, [advice]):
            engines[row.engine] = None
    return list(engines)


def _engine_config_lines(advice: Advice) -> Iterator[Line]:
    """The lines that set the size in the configuration of the row's engine."""
    for engine in _engines_of_changed_rows([advice]):
        for text in engine_config_lines(engine, [advice]):
            yield build_line(f"{INDENT}  {text}")


def _lines_below_table(
    advices: Sequence[Advice], labels: Mapping[FamilyKey, str], width: int | None
) -> Iterator[Line]:
    """The saving of all families, the use of their GPUs, and the hours in which these were idle."""
    if len(advices) > 1:
        changed = [advice.saving_usd_per_month for advice in _changed_families(advices)]
        usd = [advice.usd_per_month for advice in advices]
        yield EMPTY
        yield from wrapped_lines(total_saving_text(changed, usd, estimate_mark_of(advices)), width)
    for note in basis_sentences(advices):
        if len(advices) == 1:
            yield EMPTY
        yield from wrapped_lines(note, width)
    for advice in advices:
        if advice.evidence.usage.gpu_text:
            text = f"{labels[advice.evidence.family]}: {advice.evidence.usage.gpu_text}"
            yield from wrapped_lines(text, width)
        hours = idle_gpu_hours_per_month(advice.evidence)
        if hours.value:
            idle = f"{hours.text(format_gpu_hours)} a month"
            yield from wrapped_lines(f"{labels[advice.evidence.family]}: {idle}", width)


def _changed_families(advices: Sequence[Advice]) -> list[Advice]:
    """The families whose recommended size is no mere margin."""
    changed = [advice for advice in advices if advice.choice.is_other_size_better]
    return [advice for advice in changed if advice_verdict(advice) in ("saves", "too small")]


def _total_rows(
    advices: Sequence[Advice], places: Sequence[PlaceColumn]
) -> Iterator[tuple[str | Span, ...]]:
    """The sums of several families; without a known saving, none."""
    changed = _changed_families(advices)
    saved_usd = sum_known(*(advice.saving_usd_per_month for advice in changed))
    if len(advices) == 1 or saved_usd is None:
        return
    usd = sum_known(*(advice.usd_per_month for advice in advices))
    runs = sum(advice.evidence.outcomes.runs for advice in advices)
    percent = format_share(saved_usd, usd) or UNKNOWN
    money = estimate_mark_of(changed) + format_usd_a_month(saved_usd)
    blank = [""] * len(places)
    yield Span("Total", "bold"), *blank, str(runs), "", "", percent, Span(money, "bold")


def _family_rows(
    advices: Sequence[Advice], places: Sequence[PlaceColumn]
) -> Iterator[tuple[str | Span, ...]]:
    """The rows of the families, below the heading of their verdict if there are several."""
    indent = INDENT if len(advices) > 1 else ""
    for verdict in _VERDICTS:
        group = [advice for advice in advices if advice_verdict(advice) == verdict]
        if group and indent:
            yield Span(verdict.capitalize(), "bold"), *[""] * (len(places) + len(_COLUMNS))
        for advice in group:
            choice = advice.choice
            family = advice.evidence.family
            yield (
                f"{indent}{family.name}",
                *(get(family) or UNKNOWN for _, get in places),
                str(advice.evidence.outcomes.runs),
                size_text(choice.current),
                Span(
                    size_text(choice.size),
                    "bold" if choice.is_other_size_better and verdict != "fits" else "",
                ),
                *_saving_texts(advice),
            )


def _size_rows(advice: Advice, width: int | None) -> Iterator[Line]:
    """One row per size, with the upper bounds of its costs."""
    choice = advice.choice
    rows = []
    if not choice.options:
        yield build_line(f"{INDENT}- There is no table of sizes: the runs were outside Fargate.")
        return
    for sized in choice.options:
        usd = sized.usd_per_run
        size = TaskSize(vcpu=sized.size.vcpu, memory_mb=sized.size.memory_mb)
        factor = sized.factor
        names = []
        if size == choice.current:
            names.append("current")
        if size == choice.size:
            names.append("recommended")
        if not sized.is_acceptable:
            names.append(_why_not_acceptable(sized))
        money = value_text(usd, format_usd)
        if usd is not None and advice.evidence.usage.on_spot:
            money = advice.monthly_amount_mark + money
        monthly = month_text(advice, advice.usd_in_a_month(usd))
        saving = value_text(sized.saving_percent, format_percent)
        factors = UNKNOWN
        if factor is not None:
            factors = format_range(factor.min, factor.max)
        rows.append((size_text(size), factors, money, monthly, saving, ", ".join(names)))
    for row in aligned_table(_SIZES_COLUMNS, rows, width=width and width - len(INDENT)):
        yield (Span(INDENT), *row)
    yield EMPTY


def _why_not_acceptable(sized: SizeOption) -> str:
    """Why a size is not acceptable."""
    if not sized.holds_memory:
        return "too little memory"
    if sized.factor is None:
        return "duration not known"
    return "too slow"


def _saving_texts(advice: Advice) -> tuple[str, str]:
    """The saving of a run and of a month, or the word of a change that is not for money."""
    word = size_words_without_saving(advice)
    if word:
        return word, UNKNOWN
    saving = value_text(advice.choice.saving_percent, format_percent)
    return saving, month_text(advice, advice.saving_usd_per_month)
