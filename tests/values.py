"""Values that tests expect to be there, and values of any kind."""

from collections.abc import Iterable
from typing import Any, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

any_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def mutated(draw: st.DrawFn, *documents: Any) -> Any:
    """One of the documents with some of its parts, at any depth, replaced by anything or
    removed.
    """

    def mutate(value: Any) -> Any:
        if draw(st.integers(0, 9)) == 0:
            return draw(any_json)
        if isinstance(value, dict):
            return {key: mutate(child) for key, child in value.items() if draw(st.integers(0, 9))}
        return [mutate(child) for child in value] if isinstance(value, list) else value

    return mutate(draw(st.sampled_from(documents)))


def present(value: T | None) -> T:
    assert value is not None
    return value


# What `run` warns of where other programs are active meanwhile, as other tests are.
_CAUSED_BY_OTHERS = (
    "is a lower bound: ",
    "The average memory use may ",
    "huge pages were taken during the run",
    "The profiler did not run for ",
)


def without_caused_by_others(warnings: Iterable[str]) -> list[str]:
    """The warnings but those that other programs cause: threads or processes ended before their
    last reading or the profiler got no CPU, as on a busy machine, and the machine's kernel memory,
    shared memory or huge pages grew, perhaps by the command.
    """
    return [text for text in warnings if not any(part in text for part in _CAUSED_BY_OTHERS)]
