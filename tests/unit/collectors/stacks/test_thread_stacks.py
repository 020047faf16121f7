import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from profiler.collectors.stacks.py_spy import Frame, ThreadStack, decode_dump, shortened
from profiler.collectors.stacks.python_processes import ThreadRoots
from profiler.readers import Unavailable
from profiler.record.activity_model import WAITING_SUFFIX

PID = 100


def frame(name: str, file: str = "/app/job.py", line: int | None = 3) -> dict[str, Any]:
    return {"name": name, "filename": file, "short_filename": file.rpartition("/")[2], "line": line, "locals": None}


def thread(*frames: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A thread as py-spy prints it; its frames begin with the innermost one."""
    usual = {"pid": PID, "thread_id": 7, "thread_name": "MainThread", "os_thread_id": PID, "active": True}
    return {**usual, "owns_gil": True, "frames": list(frames), **more}


def decoded(*threads: dict[str, Any]) -> tuple[ThreadStack, ...]:
    stacks = decode_dump(json.dumps(threads).encode(), PID)
    assert not isinstance(stacks, Unavailable)
    return stacks


def test_a_stack_begins_with_the_outermost_function() -> None:
    (stack,) = decoded(thread(frame("parse_row", line=88), frame("<module>", line=12)))
    assert stack.folded == "<module> (job.py);parse_row (job.py)"
    assert [each.text_with_line for each in stack.frames] == ["<module> (job.py:12)", "parse_row (job.py:88)"]
    assert (stack.is_main, stack.is_active) == (True, True)


def test_the_main_thread_is_known_without_its_name_too() -> None:
    own, other = (thread(frame("f"), thread_name=None, os_thread_id=number) for number in (PID, 101))
    assert [stack.is_main for stack in decoded(own, other)] == [True, False]


def test_separators_and_control_characters_are_replaced_and_long_names_and_deep_stacks_are_cut() -> None:
    strange, long = decoded(thread(frame("a;b\n\x1b[31mc", "/app/a;b.py")), thread(frame("x" * 500)))
    assert strange.folded == "a,b  [31mc (a,b.py)"
    assert len(long.frames[0].function) == 100
    deep = tuple(Frame(f"f{index}", "job.py") for index in range(1000))
    short = shortened(deep)
    assert len(short) == 76
    assert (short[0], short[15], short[-1]) == (deep[0], Frame("…", ""), deep[-1])

    # A line that cannot be right is left out.
    stacks = decoded(*(thread(frame("f", line=line)) for line in (0, -1, 10**9)))
    assert [stack.frames[0].line for stack in stacks] == [None] * 3


def test_libraries_are_not_own_code() -> None:
    files = {
        "/app/job.py": True,
        "/home/lib/etl/load.py": True,
        "/usr/lib/python3.11/socket.py": False,
        "/usr/local/lib/python3.12/site-packages/boto3/client.py": False,
        "<frozen runpy>": False,
    }
    assert {file: decoded(thread(frame("f", file)))[0].frames[0].is_own for file in files} == files


def test_an_idle_worker_says_less_than_the_main_thread() -> None:
    root = frame("_bootstrap", "/usr/lib/python3.11/threading.py")
    worker = thread(frame("_worker", "/usr/lib/python3.11/concurrent/futures/thread.py"), root, active=False)
    (main,) = decoded(thread(frame("recv"), active=False))
    (idle,) = decoded({**worker, "thread_name": "w", "os_thread_id": 9})
    (fetch,) = decoded({**thread(frame("fetch"), root, active=False), "thread_name": "w", "os_thread_id": 9})
    (joining,) = decoded(thread(frame("join", "/usr/lib/python3.11/threading.py"), frame("<module>"), active=False))
    (running,) = decoded(thread(frame("burn"), thread_name="w", os_thread_id=9))
    ranked = sorted((idle, joining, fetch, main, running), key=lambda stack: stack.rank)
    assert ranked == [running, main, fetch, joining, idle]


def test_a_running_thread_that_begins_elsewhere_is_torn() -> None:
    roots = ThreadRoots()
    whole = decoded(thread(frame("leaf"), frame("<module>")))
    torn = decoded(thread(frame("leaf"), frame("deep")))
    waiting = decoded(thread(frame("_shutdown"), active=False))
    assert roots.without_torn(torn) == torn  # nothing else is known of the thread yet
    assert roots.without_torn(whole) == whole
    assert roots.without_torn(torn) == ()
    assert roots.without_torn(waiting) == waiting


@given(st.binary(max_size=300))
@example(b"[{}]")
@example(b"[" * 100_000)
@example(b'[{"thread_id":1,"active":true,"frames":[{"name":"\\ud800","filename":"\\udfff","line":1}]}]')
def test_any_output_is_understood_or_refused(output: bytes) -> None:
    stacks = decode_dump(output, PID)
    assert isinstance(stacks, Unavailable | tuple)


_texts = st.text(max_size=150)
_frames = st.fixed_dictionaries(
    {"name": _texts, "filename": _texts, "short_filename": st.none() | _texts, "line": st.integers(-(2**40), 2**40)}
)


@given(frames=st.lists(_frames, min_size=1, max_size=200), is_active=st.booleans())
def test_a_hostile_process_cannot_break_the_folded_text(*, frames: list[dict[str, Any]], is_active: bool) -> None:
    (stack,) = decoded(thread(*frames, active=is_active))
    assert stack.folded.isprintable()
    assert stack.folded.count(";") == len(shortened(stack.frames)) - 1
    assert stack.folded.endswith(WAITING_SUFFIX) is not is_active
    stack.folded.encode()
