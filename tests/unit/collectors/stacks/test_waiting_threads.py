import subprocess
import sys

from profiler.collectors.stacks.waiting_threads import stack_pointer, waiting_thread_ids
from tests.waiting import wait_until


def test_the_stack_pointer_is_the_last_word_but_one() -> None:
    assert stack_pointer(b"45 0x4 0x7f 0xa 0x0 0x0 0x0 0x7ffd8c7ee4d0 0x7f1dd7f3a9ee\n") == 0x7FFD8C7EE4D0
    assert stack_pointer(b"-1 0x7ffd8c7ee4d0 0x7f1dd7f3a9ee\n") == 0x7FFD8C7EE4D0


def test_a_running_thread_has_none() -> None:
    assert stack_pointer(b"running\n") is None
    assert stack_pointer(b"") is None
    assert stack_pointer(b"1 x y\n") is None


def test_a_process_that_is_gone_shows_nothing() -> None:
    assert waiting_thread_ids(2**22 + 1, [1], 1) is None


def test_threads_of_a_real_process() -> None:
    code = (
        "import threading, time\n"
        "def burn():\n    while True: pass\n"
        "for target in (lambda: time.sleep(99), burn):\n"
        "    thread = threading.Thread(target=target, daemon=True)\n"
        "    thread.start()\n"
        "    print(thread.ident, flush=True)\n"
        "print(threading.get_ident(), flush=True)\n"
        "time.sleep(99)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        sleeper, burner, main = (int(process.stdout.readline()) for _ in range(3))
        try:
            wait_until(
                lambda: waiting_thread_ids(process.pid, [sleeper, burner, main], main) == frozenset({sleeper, main}),
                60,
                "the two threads that wait",
            )
        finally:
            process.kill()
