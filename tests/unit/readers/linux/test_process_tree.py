"""The tree of a real process, and its memory between two readings."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from profiler.core.clock import CpuBudget
from profiler.readers.linux import proc, process_tree
from profiler.readers.linux.memory_shares import MemoryShares
from profiler.readers.linux.process_tree import ProcessTree, QuickMemoryReader, list_children
from tests import fakes
from tests.values import present

# Starts 300 threads. For each line of its input, a thread starts a child, which starts another one.
# The thread stays: the kernel would move its child to another thread, at a moment between two
# readings of the test.
_PROGRAM = """
import subprocess, sys, threading
for _ in range(300):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print(flush=True)
for line in sys.stdin:
    start = lambda: (subprocess.Popen(["sh", "-c", "sleep 1000 & echo; wait"]), threading.Event().wait())
    threading.Thread(target=start, daemon=True).start()
"""


def test_new_processes_are_found_whatever_thread_has_started_them() -> None:
    tree = ProcessTree(os.getpid(), (), lambda: 0)
    words = (sys.executable, "-S", "-c", _PROGRAM)
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        try:
            for count in range(6):
                present(process.stdout).readline()
                found = {reading.pid for reading in tree.read_all()}
                assert process.pid in found
                assert len(found) == 1 + 2 * count
                assert set(tree.identities()) == set(
                    ProcessTree(os.getpid(), (), lambda: 0).identities()
                )
                process.stdin.write("more\n")
                process.stdin.flush()
            assert tree._others
        finally:
            for pid, _ in tree.identities():
                os.kill(pid, 9)


def test_a_child_that_moves_between_lists_meanwhile_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A child that moves to another list while the lists are read is not lost."""
    tree = ProcessTree(os.getpid(), (), lambda: 0)
    with subprocess.Popen(["sh", "-c", "sleep 1000 & wait"]) as process:
        while len(before := tree.identities()) < 2:
            pass
        no_list = lambda pid, threads: () if pid == process.pid else list_children(pid, threads)  # noqa: E731
        monkeypatch.setattr(process_tree, "list_children", no_list)
        assert tree.identities() == before
        for pid, _ in reversed(before):
            os.kill(pid, 9)


def test_an_id_that_is_used_again_is_looked_at_again() -> None:
    tree = ProcessTree(os.getpid(), (), lambda: 0)
    tree._has_children_files = False
    with (
        subprocess.Popen(["sleep", "1000"]) as first,
        subprocess.Popen(["sleep", "1000"]) as process,
    ):
        tree._unrelated_children = {process.pid}
        assert [reading.pid for reading in tree.read_all()] == [first.pid]
        tree._unrelated_children = ()
        tree._others, tree.last_pid = {process.pid}, 1 << 30  # another process had the id before
        assert {reading.pid for reading in tree.read_all()} == {first.pid, process.pid}
        first.kill()
        process.kill()


def test_nobody_is_searched_for_until_an_id_is_assigned_or_a_process_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    last_pid, listed = 7, list[int]()
    list_all = process_tree.list_children

    def noted(pid: int, threads: int) -> tuple[int, ...]:
        listed.append(pid)
        return list_all(pid, threads)

    monkeypatch.setattr(process_tree, "list_children", noted)
    tree = ProcessTree(os.getpid(), (), lambda: 0, lambda: last_pid)
    words = ["sh", "-c", "sleep 1000 & echo; wait; sleep 1000 & echo; read line"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        present(process.stdout).readline()
        pids = tuple(pid for pid, _ in tree.identities())
        assert pids[0] == process.pid
        assert len(pids) == 2
        tree.identities()
        listed.clear()
        assert tuple(reading.pid for reading in tree.read_all()) == pids
        assert not listed
        os.kill(pids[1], signal.SIGKILL)
        present(process.stdout).readline()
        # The shell has started another one, which nobody can know without its id.
        assert pids[1] not in [pid for pid, _ in tree.identities()]
        tree.identities()
        listed.clear()
        last_pid += 1
        found = tuple(pid for pid, _ in tree.identities())
        assert listed[0] == os.getpid()
        assert len(found) == 2
        for pid in found:
            os.kill(pid, signal.SIGKILL)


def test_what_has_not_run_is_not_read_again_until_ten_seconds_have_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ns, read = 0, list[str]()
    tree = ProcessTree(os.getpid(), (), lambda: now_ns)
    read_file = proc.read_or_none

    def noted(path: str) -> bytes | None:
        read.append(path)
        return read_file(path)

    monkeypatch.setattr(proc, "read_or_none", noted)
    with subprocess.Popen(
        [sys.executable, "-c", _WAITING], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        present(process.stdout).readline()
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        first, read[:] = tree.read_all(), []
        (again,) = tree.read_all()
        assert again is first[0]
        assert not [path for path in read if path.startswith(f"/proc/{process.pid}/")]
        now_ns = 10**10
        (after,) = tree.read_all()
        assert after is first[0]
        of_process = [path for path in read if path.startswith(f"/proc/{process.pid}/")]
        folder = f"/proc/{process.pid}"
        assert of_process == [f"{folder}/stat", f"{folder}/task/{process.pid}/children"]
        os.kill(process.pid, signal.SIGCONT)
        present(process.stdin).write(b".")  # the program would read a second byte, and end
        present(process.stdin).flush()
        present(process.stdout).readline()
        assert present(tree.read_all()[0].rss_bytes) > present(again.rss_bytes) + 30 * _MIB
        process.kill()


def test_memory_that_others_take_from_a_process_that_has_not_run_is_seen(tmp_path: Path) -> None:
    now_ns = 0
    tree = ProcessTree(os.getpid(), (), lambda: now_ns)
    file = tmp_path / "mapped"
    mapping = (
        f"import mmap; file = open({str(file)!r}, 'w+b'); file.truncate(32 << 20); "
        "mapped = mmap.mmap(file.fileno(), 0); mapped.write(bytes(32 << 20)); "
        "print(flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", mapping], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        present(process.stdout).readline()
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        (before,) = tree.read_all()
        os.truncate(file, 0)
        assert tree.read_all() == (before,)
        now_ns = 10**10
        (after,) = tree.read_all()
        assert present(after.rss_bytes) < present(before.rss_bytes) - 30 * _MIB
        process.kill()


def test_a_script_that_executes_another_one_has_the_name_of_the_new_one(tmp_path: Path) -> None:
    first, second = tmp_path / "load.py", tmp_path / "export.py"
    execute = f"os.execv(sys.executable, ['python3', {str(second)!r}])"
    first.write_text(f"import os, sys; print(flush=True); input(); {execute}")
    second.write_text("print(flush=True); input()")
    tree, names = ProcessTree(os.getpid(), (), lambda: 0), []
    with subprocess.Popen(
        [sys.executable, first], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        for _ in range(2):
            present(process.stdout).readline()
            names += [reading.name.partition(" ")[2] for reading in tree.read_all()]
            present(process.stdin).write("\n")
            present(process.stdin).flush()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        names += [reading.name.partition(" ")[2] for reading in tree.read_all()]  # of the zombie
    assert names == ["load.py", "export.py", "export.py"]


_WAITING = (
    "import os; print(flush=True); os.read(0, 1); held = bytearray(40 << 20); print(flush=True); "
    "os.read(0, 9)"
)
_MIB = 2**20
# Says that it is ready, and allocates as many MiB as a line of its input has; "fork MIB" forks a
# child that allocates them and waits, "map MIB" one that maps so much of a file of its own.
_GROWING_PROGRAM = """
import mmap, os, sys, tempfile
held = []
def mapped(size):
    file = tempfile.TemporaryFile()
    file.truncate(size)
    view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    sum(view[page] for page in range(0, size, 4096))
    return view
print(flush=True)
for line in sys.stdin:
    *way, mebibytes = line.split()
    size = int(mebibytes) * 2**20
    if way:
        ready, tell = os.pipe()
        if not os.fork():
            held.append(mapped(size) if way == ["map"] else b"x" * size)
            os.write(tell, b".")
            os.read(0, 1)
            os._exit(0)
        os.read(ready, 1)
    else:
        held.append(b"x" * size)
    print(flush=True)
"""


@contextmanager
def _process() -> Iterator[Callable[[str], None]]:
    """A process of the program, which does what a line says."""
    words = (sys.executable, "-S", "-c", _GROWING_PROGRAM)
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def tell(line: str) -> None:
            print(line, file=process.stdin, flush=True)
            present(process.stdout).readline()

        present(process.stdout).readline()
        yield tell
        process.kill()


def _is_about(size_bytes: int | None, mebibytes: float, tolerance: float = 3) -> bool:
    return size_bytes is not None and abs(size_bytes / _MIB - mebibytes) < tolerance


def _shares() -> MemoryShares:
    return MemoryShares(CpuBudget(1, 3), os.sysconf("SC_PAGE_SIZE"), lambda: 0, lambda: 0)


def test_what_was_unmapped_since_the_last_reading_does_not_count() -> None:
    quick = QuickMemoryReader(os.getpid(), ())
    with _process() as tell:
        tell("30")
        (process,) = ProcessTree(os.getpid(), (), lambda: 0).read_all()
        before_bytes = present(quick.estimate_held_bytes())
        mapped_bytes = present(process.rss_bytes) + 100 * _MIB
        with_segment = replace(
            process,
            rss_bytes=mapped_bytes,
            share_bytes=present(process.anonymous_bytes) + 100 * _MIB,
        )
        quick.reset_baseline([with_segment])
        assert _is_about(quick.estimate_held_bytes(), before_bytes / _MIB)


def test_growth_and_new_processes_are_seen() -> None:
    tree, quick, shares = (
        ProcessTree(os.getpid(), (), lambda: 0),
        QuickMemoryReader(os.getpid(), ()),
        _shares(),
    )
    with _process() as first:
        first("30")
        alone = present(quick.estimate_held_bytes())
        assert alone > 30 * _MIB
        quick.reset_baseline(shares.readings_with_shares(tree.read_all()))
        assert quick.estimate_held_bytes() is not None
        assert not quick.has_changed
        with _process() as second:
            both = quick.estimate_held_bytes()
            assert quick.has_changed
            assert both is not None
            second("40")
            assert _is_about(quick.estimate_held_bytes(), both / _MIB + 40)
            first("20")
            assert _is_about(quick.estimate_held_bytes(), both / _MIB + 60)
            readings = shares.readings_with_shares(tree.read_all())
            quick.reset_baseline(readings)
            assert _is_about(
                quick.estimate_held_bytes(),
                sum(reading.share_bytes or 0 for reading in readings) / _MIB,
            )
        assert quick.estimate_held_bytes() is not None
        assert quick.has_changed


def test_memory_that_a_fork_shares_is_not_counted_twice() -> None:
    """Memory that a fork shares is not counted twice and with too many threads nothing is known."""
    tree, quick = ProcessTree(os.getpid(), (), lambda: 0), QuickMemoryReader(os.getpid(), ())
    with _process() as process:
        process("50")
        (alone,) = tree.read_all()
        quick.reset_baseline(_shares().readings_with_shares((alone,)))
        before = present(quick.estimate_held_bytes())
        process("fork 0")
        assert _is_about(quick.estimate_held_bytes(), before / _MIB)
        assert quick.has_changed
        quick.reset_baseline([fakes.process(alone.pid, threads=100)])
        assert (
            quick.estimate_held_bytes()
            is QuickMemoryReader(os.getpid(), {alone.pid}).estimate_held_bytes()
            is None
        )


def test_a_fork_that_maps_a_file_of_its_own_has_no_inherited_page() -> None:
    """The pages of the file are private, as those that a fork has copied."""
    tree, quick, shares = (
        ProcessTree(os.getpid(), (), lambda: 0),
        QuickMemoryReader(os.getpid(), ()),
        _shares(),
    )
    with _process() as process:
        process("50")
        quick.reset_baseline(shares.readings_with_shares(tree.read_all()))
        before = present(quick.estimate_held_bytes())
        process("map 60")
        assert _is_about(quick.estimate_held_bytes(), before / _MIB)
        # Nor does a mark that the kernel keeps of it.
        assert quick.file_bytes >= 60 * _MIB
        quick.reset_baseline(shares.readings_with_shares(tree.read_all()))
        assert quick.file_bytes == 0


def test_a_fork_whose_private_memory_is_not_readable_counts_no_inherited_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Processes that are not dumpable, and gVisor: the fork has allocated since, so that its sizes
    are no longer its parent's.
    """
    read = proc.read_or_none
    quick = QuickMemoryReader(os.getpid(), ())
    monkeypatch.setattr(
        proc, "read_or_none", lambda path: None if path.endswith("smaps_rollup") else read(path)
    )
    with _process() as process:
        process("50")
        before = present(quick.estimate_held_bytes())
        process("fork 30")
        assert _is_about(quick.estimate_held_bytes(), before / _MIB)
        quick.reset_baseline(
            _shares().readings_with_shares(ProcessTree(os.getpid(), (), lambda: 0).read_all())
        )
        assert _is_about(quick.estimate_held_bytes(), before / _MIB + 30)


def test_a_child_of_which_proc_shows_nothing_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = ProcessTree(os.getpid(), (), lambda: 0)
    read = proc.read_or_none
    with subprocess.Popen(["sleep", "1000"]) as process:
        folder = f"/proc/{process.pid}/"
        assert [reading.pid for reading in tree.read_all()] == [process.pid]
        assert not tree.has_hidden

        monkeypatch.setattr(
            proc, "read_or_none", lambda path: None if path.startswith(folder) else read(path)
        )
        hiding = ProcessTree(os.getpid(), (), lambda: 0)
        assert hiding.read_all() == ()
        assert hiding.has_hidden
        unrelated = ProcessTree(os.getpid(), (process.pid,), lambda: 0)
        unrelated.read_all()
        assert not unrelated.has_hidden
        process.kill()


def test_an_unrelated_child_costs_no_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = proc.read_or_none

    def read_or_none(path: str) -> bytes | None:
        read.append(path)
        return real(path)

    monkeypatch.setattr(proc, "read_or_none", read_or_none)
    with subprocess.Popen(["sleep", "1000"]) as process:
        ProcessTree(os.getpid(), (process.pid,), lambda: 0).read_all()
        process.kill()
    assert f"/proc/{process.pid}/stat" not in read


def test_a_child_that_has_ended_is_not_hidden() -> None:
    tree = ProcessTree(os.getpid(), (), lambda: 0)
    with subprocess.Popen(["sleep", "1000"]) as process:
        tree.read_all()
        process.kill()
    assert tree.read_all() == ()
    assert not tree.has_hidden


def test_the_kernel_has_a_stack_for_each_thread_of_a_process_with_memory() -> None:
    process = fakes.process(threads=100, page_table_bytes=50_000)
    assert process.kernel_bytes == 50_000 + 100 * 16_384
    assert replace(process, page_table_bytes=None).kernel_bytes == 0
