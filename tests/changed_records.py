"""Record lines in which one value is replaced by an odd one."""

import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

from profiler.record.record_model import encode
from tests import shown_runs

KINDS = (
    "etl",
    "out_of_memory",
    "failure",
    "stopped",
    "running",
    "gpu",
    "neuron",
    "local",
    "unmeasured",
    "waiting",
)
LINES = [json.loads(encode(getattr(shown_runs, kind)())) for kind in KINDS]


NUMBERS = (
    st.sampled_from([0, -1, -1e9, 1e-300, 1e12, 1e300])
    | st.integers()
    | st.floats(allow_nan=False, width=64)
)
TIMES = st.sampled_from(
    ["0001-01-01T00:00:00Z", "2026-11-20T03:12:44Z", "2200-12-31T23:59:59Z", ""]
)
TEXTS = TIMES | st.text(max_size=9)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values that are not lists or objects with something in them."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    places = [place for key, one in inner for place in leaves(one, (*path, key))]
    yield from places or [path]


@st.composite
def changed_lines(draw: st.DrawFn, lines: Sequence[Any] = LINES) -> bytes:
    """A line in which up to eight values are others of their kind, or missing."""
    line = json.loads(json.dumps(draw(st.sampled_from(lines))))
    for *parents, name in draw(st.lists(st.sampled_from(list(leaves(line))), max_size=8)):
        place = functools.reduce(lambda value, key: value[key], parents, line)
        place[name] = draw(st.none() | (TEXTS if isinstance(place[name], str) else NUMBERS))
    return json.dumps(line).encode()
