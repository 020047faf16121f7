"""The call stacks of a run as text: the tree of its functions, the functions that ran most, and
the moments.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

from profiler.cli.printing import value_text
from profiler.cli.styled_text import (
    INDENT,
    Line,
    Span,
    build_line,
    cut_end,
    with_empty_lines_between,
    wrapped_lines,
)
from profiler.cli.tables import Column, aligned_table
from profiler.core.optional_math import difference, first_known, quotient
from profiler.core.text import words_if_known
from profiler.core.timestamps import NS_PER_MS
from profiler.record.activity_model import WAITING_SUFFIX, StackMoment, Stacks
from profiler.record.record_model import Record
from profiler.record.stacks_line import StacksLine
from profiler.record.units import format_count, format_percent
from profiler.runs.past_runs.run_moments import format_elapsed
from profiler.runs.past_runs.stack_functions import MIN_SAMPLES, frame_of_text, frames_of_moment

# Functions in fewer stacks are left out. If the tree has too many lines, the limit rises.
_MIN_SHARES = (0.01, 0.02, 0.05, 0.1)
_MAX_TREE_LINES = 80
# If at least this many functions of Python and of packages follow each other, only their number is
# shown.
_MIN_FOLDED = 3
_SHARE_WIDTH = 7
_MIN_TEXT_WIDTH = 30


class FunctionNode:
    """A function in the tree, with the number of stacks in which it was called this way."""

    def __init__(self, text: str, *, is_own: bool = False) -> None:
        self.text = text
        self.is_own = is_own
        self.count = 0
        self.below: dict[str, FunctionNode] = {}


def function_tree(stacks: StacksLine) -> FunctionNode:
    """Add up the stacks of all steps, from the outermost function on.

    A function that calls itself is one node.
    """
    root = FunctionNode("")
    for step in stacks.steps:
        for folded, count in step.stacks.items():
            if count > 0:
                _add_stacks(root, folded, count, stacks.own_files)
    return root


def _add_stacks(
    root: FunctionNode, folded: str, count: int, own_files: Sequence[str] | None
) -> None:
    """Add equal stacks; the last function of a stack that waited is a node of its own."""
    functions = folded.removesuffix(WAITING_SUFFIX).split(";")[:1000]
    names = [name for name, _ in groupby(functions)]
    if folded.endswith(WAITING_SUFFIX):
        names[-1] += WAITING_SUFFIX
    node = root
    node.count += count
    for name in names:
        if name not in node.below:
            frame = frame_of_text(name.removesuffix(WAITING_SUFFIX), own_files)
            node.below[name] = FunctionNode(name, is_own=frame.is_own)
        node = node.below[name]
        node.count += count


def stacks_lines(record: Record, stacks: StacksLine, width: int) -> list[Line]:
    """All data on the stacks of a run."""
    root = function_tree(stacks)
    known = record.stacks
    source = f" by {known.source}" if known.source else ""
    samples = f"{format_count(known.samples, 'sample')}, " if known.samples else ""
    title = (
        f"{record.family or record.container.name} {record.task_id}: "
        f"{samples}{format_count(root.count, 'stack')}{source}"
    )
    return with_empty_lines_between(
        (
            wrapped_lines(title, width, style="bold"),
            _tree_lines(root, width),
            _most_run_lines(known, width),
            *(_moment_lines(moment, record, width) for moment in known.moments),
        )
    )


def _tree_lines(root: FunctionNode, width: int) -> list[Line]:
    for share in _MIN_SHARES:
        rows = list(_branch_lines(root, root.count * share, width))
        if len(rows) <= _MAX_TREE_LINES:
            break
    head = (
        f"Functions in {format_percent(100 * share)} of the stacks or more, each below its caller"
    )
    if len(rows) > _MAX_TREE_LINES:
        left_out = format_count(len(rows) - _MAX_TREE_LINES, "line")
        rows[_MAX_TREE_LINES:] = [
            build_line(Span(f"{left_out} omitted: --json prints everything.", "dim"))
        ]
    return [*wrapped_lines(head, width, style="bold"), *rows] if rows else rows


def _branch_lines(root: FunctionNode, min_count: float, width: int) -> Iterator[Line]:
    """Each function below its caller, and further to the right as long as there is room."""
    max_indents = (width - _SHARE_WIDTH - _MIN_TEXT_WIDTH) // len(INDENT)

    def row(count: int, span: Span, indents: int) -> Line:
        start = f"{100 * count / root.count:>3.0f} %  {INDENT * min(indents, max_indents)}"
        name = span.text.removesuffix(WAITING_SUFFIX)
        suffix = span.text[len(name) :]  # it stays when the name is cut
        shown = cut_end(name, width - len(start) - len(suffix)) + suffix
        return build_line(start, Span(shown, span.style))

    pending: list[tuple[FunctionNode | Span, int, int]] = [(root, root.count, 0)]
    while pending:
        node, count, indents = pending.pop()
        if isinstance(node, Span):
            yield row(count, node, indents)
            continue
        chain = _chain_of_only_calls(node)
        if node is not root:
            for span in _chain_spans(chain):
                yield row(count, span, indents)
                indents += 1
        below = sorted(chain[-1].below.values(), key=lambda child: (-child.count, child.text))
        shown = [child for child in below if child.count >= min_count]
        rest = below[len(shown) :]
        if rest:
            more = Span(f"… {len(rest)} more", "dim")
            pending.append((more, sum(child.count for child in rest), indents))
        pending += [(child, child.count, indents) for child in reversed(shown)]


def _chain_of_only_calls(node: FunctionNode) -> list[FunctionNode]:
    """The function and the functions below it, as long as each always called one other."""
    chain = [node]
    while (
        node.text and len(node.below) == 1 and next(iter(node.below.values())).count == node.count
    ):
        node = next(iter(node.below.values()))
        chain.append(node)
    return chain


def _chain_spans(chain: Sequence[FunctionNode]) -> Iterator[Span]:
    """The functions of a chain.

    A longer row of functions that are not the user's is shown as a number.
    """
    foreign: list[FunctionNode] = []
    for place, node in enumerate(chain):
        is_last = place == len(chain) - 1
        if not node.is_own and not is_last:
            foreign.append(node)
            continue
        if len(foreign) >= _MIN_FOLDED:
            yield Span(f"… {len(foreign)} calls in Python and packages", "dim")
        else:
            yield from (Span(function.text) for function in foreign)
        foreign = []
        style = "bold" if node.is_own else ""
        if node.text.endswith(WAITING_SUFFIX):
            style = "cyan"
        yield Span(node.text, style)


def _most_run_lines(stacks: Stacks, width: int) -> Iterator[Line]:
    if not stacks.top:
        return
    title = "Share of the stacks of running threads"
    samples = first_known(stacks.running_samples, stacks.samples)
    if samples is not None and samples < MIN_SAMPLES:
        title += f" in only {format_count(samples, 'sample')}: a matter of chance"
    yield from wrapped_lines(title, width, style="bold")
    columns = (
        Column("itself", is_right=True),
        Column("with calls", is_right=True),
        Column("function", folds=True),
        Column("file", folds=True),
    )
    rows = []
    for function in stacks.top:
        own = value_text(function.self_percent, format_percent)
        total = value_text(function.total_percent, format_percent)
        place = function.file + words_if_known(":{}", function.line)
        rows.append((own, total, function.function, place))
    yield from aligned_table(columns, rows, width=width)


_MOMENTS = {
    "memory": "What ran while the memory rose",
    "idle": "Where it was idle",
    "saturated": "What ran while all vCPUs were in use",
}


def _moment_lines(moment: StackMoment, record: Record, width: int) -> Iterator[Line]:
    started_ns = record.started_ns
    from_ns = moment.from_ns
    to_ns = moment.to_ns
    title = _MOMENTS.get(moment.kind, moment.kind)
    start_ms = quotient(difference(from_ns, started_ns), NS_PER_MS)
    end_ms = quotient(difference(to_ns, started_ns), NS_PER_MS)
    if start_ms is not None and end_ms is not None:
        title += f" from {format_elapsed(max(start_ms, 0))} to {format_elapsed(max(end_ms, 0))}"
    if moment.percent is not None and moment.samples:
        title += (
            f", this stack in {format_percent(moment.percent)} of "
            f"{format_count(moment.samples, 'sample')}"
        )
    yield from wrapped_lines(title, width, style="bold")
    for text, frame in zip(moment.stack, frames_of_moment(moment), strict=True):
        yield build_line(
            INDENT, Span(cut_end(text, width - len(INDENT)), "bold" if frame.is_own else "")
        )
