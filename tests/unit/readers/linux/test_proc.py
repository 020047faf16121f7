import os
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from profiler.readers.linux import proc


def test_a_process_has_a_name_until_it_ends() -> None:
    with subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE) as process:
        stat = proc.parse_stat(proc.read(f"/proc/{process.pid}/stat") or b"")
        assert stat is not None
        assert proc.read_live_name(process.pid, stat.started_ticks) == stat.name
        assert proc.read_live_name(process.pid, stat.started_ticks - 1) is None
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert proc.read_live_name(process.pid, stat.started_ticks) is None


NET_DEV = b"""Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier
    lo:    1000      10    0    0    0     0          0         0     1000      10    0    0    0     0       0
  eth0:9876543210     20    0    0    0     0          0         0      234      20    0    0    0     0       0
"""


def test_the_bytes_of_all_interfaces() -> None:
    assert proc.parse_interfaces(NET_DEV) == 1000 + 1000 + 9876543210 + 234
    assert [proc.parse_interfaces(text) for text in (b"", NET_DEV[:100], b"eth0: 1 2", b"eth0: a b")] == [None] * 4


@given(st.binary())
def test_any_text_about_interfaces_is_read(text: bytes) -> None:
    bytes_seen = proc.parse_interfaces(text)
    assert bytes_seen is None or isinstance(bytes_seen, int)


def test_private_memory() -> None:
    assert proc.parse_private(b"Rss: 9 kB\nPrivate_Clean:  2 kB\nPrivate_Dirty:  3 kB\n") == 5 * 1024
    assert proc.parse_private(b"Rss: 9 kB\nPrivate_Clean:  2 kB\n") is None
