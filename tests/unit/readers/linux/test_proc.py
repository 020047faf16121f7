import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.readers.cgroup import hierarchy
from profiler.readers.linux import host, instance, proc, system_calls, watched_descriptors
from profiler.readers.linux.interpreters import INTERPRETERS, JAVA, is_interpreter
from profiler.readers.linux.script_names import name_of_code, name_with_script
from tests.cases import each_case
from tests.open_files import open_files

NET_DEV = b"""Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier
    lo:    1000      10    0    0    0     0          0         0     1000      10    0    0    0     0       0
  eth0:9876543210     20    0    0    0     0          0         0      234      20    0    0    0     0       0
"""


def test_the_bytes_of_all_interfaces_and_private_memory() -> None:
    assert proc.parse_network(NET_DEV) == (9876543210, 234)
    assert proc.parse_network(NET_DEV, with_loopback=True) == (1000 + 9876543210, 1000 + 234)
    assert [
        proc.parse_network(text) for text in (b"", NET_DEV[:100], b"eth0: 1 2", b"eth0: a b")
    ] == [None] * 4
    assert (
        proc.parse_private_bytes(b"Rss: 9 kB\nPrivate_Clean:  2 kB\nPrivate_Dirty:  3 kB\n")
        == 5 * 1024
    )
    assert proc.parse_private_bytes(b"Rss: 9 kB\nPrivate_Clean:  2 kB\n") is None


def test_the_last_id_is_read_from_a_file_that_stays_open(tmp_path: Path) -> None:
    file = proc.LoadFile(str(tmp_path))
    loads = tmp_path / "loadavg"
    assert file.last_pid() is None
    for text, able, pid in (
        ("0.1 0.2 0.3 1/9 4711\n", 1, 4711),
        ("0.1 0.2 0.3 12/345 12\n", 12, 12),
        ("?", None, None),
    ):
        loads.write_text(text)
        assert file.last_pid() == proc.read_last_pid(str(tmp_path)) == pid
        assert file.able_threads_and_last_pid() == (able, pid)
    file.close()
    assert not open_files(loads)


def test_the_last_id_of_another_file_system_than_the_kernels_is_not_read(tmp_path: Path) -> None:
    loads = tmp_path / "loadavg"
    loads.symlink_to("/proc/loadavg")
    assert proc.LoadFile(str(tmp_path)).able_threads_and_last_pid() == (None, None)
    able, last_pid = proc.LoadFile().able_threads_and_last_pid()
    assert able
    assert last_pid


def test_an_id_of_zero_is_none_and_so_is_a_number_of_threads(tmp_path: Path) -> None:
    (tmp_path / "loadavg").write_text("0.00 0.00 0.00 0/0 0\n")
    assert proc.LoadFile(str(tmp_path)).able_threads_and_last_pid() == (None, None)


_KIB = 1024


def _rollup(**sizes_kib: int) -> bytes:
    return "".join(f"{name}: {size} kB\n" for name, size in sizes_kib.items()).encode()


@pytest.mark.parametrize(
    ("sizes", "least"),
    [
        pytest.param(
            {"Rss": 160, "Pss": 130, "Pss_Anon": 20, "Private_Clean": 100, "Anonymous": 50},
            0,
            id="a fork that maps a file which no other maps",
        ),
        pytest.param(
            {"Rss": 160, "Pss": 150, "Pss_Anon": 40, "Private_Clean": 140, "Anonymous": 50},
            30,
            id="it has copied a part since",
        ),
        pytest.param(
            {"Rss": 160, "Pss": 110, "Pss_Anon": 45, "Private_Clean": 40, "Anonymous": 50},
            40,
            id="files that others map, too, leave what the parts of the anonymous pages say",
        ),
        pytest.param(
            {"Rss": 60, "Pss": 55, "Pss_Anon": 50, "Private_Clean": 52, "Anonymous": 50},
            50,
            id="a program",
        ),
        pytest.param(
            {"Rss": 160, "Pss": 150, "Private_Clean": 140, "Anonymous": 50},
            30,
            id="before Linux 5.4",
        ),
        pytest.param(
            {"Rss": 160, "Pss": 130, "Private_Clean": 100, "Anonymous": 50},
            0,
            id="before Linux 5.4, a fork",
        ),
        pytest.param({"Rss": 160, "Private_Clean": 100}, None, id="unknown"),
    ],
)
def test_private_pages_of_files_are_no_private_anonymous_memory(
    sizes: dict[str, int], least: int | None
) -> None:
    text = _rollup(**sizes, Private_Dirty=0)
    assert proc.parse_private_anonymous_bytes(text) == (None if least is None else least * _KIB)


@given(st.binary() | st.text().map(str.encode))
def test_any_text_of_the_kernel_is_read(text: bytes) -> None:
    for number in (hierarchy.parse_number(text), hierarchy.parse_cpu_stat_ns(text)):
        assert number is None or number >= 0
    for read in (
        proc.parse_stat,
        proc.parse_status,
        proc.parse_private_bytes,
        proc.parse_private_anonymous_bytes,
        proc.parse_child_pids,
        proc.parse_io,
        proc.parse_changed_bytes,
    ):
        read(text)
    proc.parse_network(text)
    assert all(number >= 0 for number in watched_descriptors.poll_descriptors(text))
    watched_descriptors.select_descriptors([text])
    call = system_calls.parse_system_call(text)
    assert call is None or call.number >= -1
    words = text.decode(errors="replace")
    for parse in (hierarchy.parse_membership, hierarchy.parse_cpu_max, hierarchy.parse_limit_bytes):
        parse(words)
    hierarchy.ProcessCgroups("/", {}, words)
    assert instance.disk_mounts(words, bool)[0] == "/"
    host.parse_processor_model(words)
    host.parse_processor_model(f"model name: {words}")


def test_what_an_interpreter_runs() -> None:
    cases: tuple[tuple[Sequence[str], str, str | None], ...] = (
        (("python3", "export.py", "--date", "2026-11-20"), "python3 export.py", "export"),
        (("python3.11", "-u", "/srv/etl/export.py"), "python3.11 export.py", "export"),
        (("python3", "-Wignore", "-X", "utf8", "job.v2.py"), "python3 job.v2.py", "job.v2"),
        (("python3", "-m", "pkg.tool", "job.py"), "python3 pkg.tool", "pkg.tool"),
        (("python3", "-um", "pkg"), "python3 pkg", "pkg"),
        (("python3", "-umpkg"), "python3 pkg", "pkg"),
        (("python3", "job"), "python3 job", "job"),
        (("python3", "-c", "import/of/token.py"), "python3", None),
        (("python3", "-uc", "x.py"), "python3", None),
        (("python3", "-K", "x.py"), "python3", None),
        (("python3", "--unknown", "x.py"), "python3", None),
        (("python3", "-"), "python3", None),
        (("python3", "password=x y.py"), "python3", None),
        (("python3",), "python3", None),
        (("node", "--max-old-space-size=4096", "dist/main.mjs"), "node main.mjs", "main"),
        (("node", "-r", "hook.js", "main.js"), "node main.js", "main"),
        (("node", "--eval", "token.js"), "node", None),
        (("node", "-pe", "token.js"), "node", None),
        (("bash", "-eu", "./run.sh", "secret"), "bash run.sh", "run"),
        (("bash", "-o", "pipefail", "+x", "load"), "bash load", "load"),
        (("bash", "-ec", "run.sh --token x"), "bash", "run.sh"),
        (("sh", "-c", "cd /srv && A=1 exec python3 -u job.py | tee log"), "sh", "job"),
        (("sh", "-c", "set -e\n# nightly\ngzip -9 data"), "sh", "gzip"),
        (("sh", "-c", 'trap "" TERM; gzip -9 data'), "sh", "gzip"),
        (("sh", "-c", 'trap "rm -f x" EXIT; gzip -9 data'), "sh", "gzip"),
        (("sh", "-c", "exec >etl.log 2>&1; gzip -9 data"), "sh", "gzip"),
        (("bash", "-c", "exec &>etl.log; gzip -9 data"), "bash", "gzip"),
        (("sh", "-c", ">etl.log gzip -9 data"), "sh", "gzip"),
        (("sh", "-c", "cd x >/dev/null && gzip -9 data"), "sh", "gzip"),
        (("sh", "-c", "for i in 1 2; do /opt/bin/load $i; done"), "sh", "load"),
        (("sh", "-c", "python3 -c 1"), "sh", "python3"),
        (("sh", "-c", "'"), "sh", None),
        (("sh", "-s", "job.sh"), "sh", None),
        (("perl", "-w", "load.pl"), "perl load.pl", "load"),
        (("perl", "-lane", "print"), "perl", None),
        (("perl", "-I", "lib", "-MJSON", "load.pl"), "perl load.pl", "load"),
        (("ruby", "-W0", "-rjson", "load.rb"), "ruby load.rb", "load"),
        (("ruby", "-e", "x.rb"), "ruby", None),
        (("Rscript", "--vanilla", "fit.R"), "Rscript fit.R", "fit"),
        (("Rscript", "-e", "fit.R"), "Rscript", None),
        (("R", "--no-echo", "--no-restore", "--file=fit.R", "--args", "x"), "R fit.R", "fit"),
        (
            ("java", "-Xmx2g", "-cp", "a.jar:b.jar", "-jar", "lib/etl.jar", "x"),
            "java etl.jar",
            "etl",
        ),
        (("java", "-Dkey=secret", "com.acme.Etl", "x.jar"), "java com.acme.Etl", "com.acme.Etl"),
        (("java", "--unknown", "x.jar"), "java", None),
        (("php", "-d", "memory_limit=1G", "load.php"), "php load.php", "load"),
        (("/usr/bin/sort", "data.py"), "sort", None),
    )
    for words, process, family in cases:
        assert name_with_script(words[0].rpartition("/")[2], words[1:]) == process
        assert name_of_code(words) == family


@each_case("name", sorted(INTERPRETERS))
def test_the_script_of_every_interpreter_is_found(name: str) -> None:
    options = ("-jar",) if name == JAVA else ()
    assert is_interpreter(name)
    assert name_of_code((f"/usr/bin/{name}", *options, "/srv/job.x")) == "job.x"


def test_an_interpreter_may_have_a_version_in_its_name() -> None:
    assert is_interpreter("python3.11")
    assert name_of_code(("java17", "-jar", "/srv/etl.jar")) == "etl"
    assert not is_interpreter("gzip")


@pytest.mark.diagonal(3)
@pytest.mark.parametrize(
    "options",
    [
        *(
            ("python3", one)
            for one in (
                "-b",
                "-B",
                "-d",
                "-E",
                "-I",
                "-O",
                "-OO",
                "-q",
                "-s",
                "-S",
                "-u",
                "-v",
                "-x",
            )
        ),
        *(
            ("python3", *two)
            for two in (("-W", "ignore"), ("-X", "utf8"), ("--check-hash-based-pycs", "always"))
        ),
        *(
            ("bash", one)
            for one in ("-e", "-u", "-x", "-eu", "-f", "-B", "-H", "--posix", "--norc", "+e")
        ),
        *(("bash", *two) for two in (("-o", "pipefail"), ("-euo", "pipefail"), ("-O", "extglob"))),
        *(("perl", one) for one in ("-w", "-W", "-T", "-t", "-l", "-0777", "-Mstrict", "-Ilib")),
        *(
            ("node", one)
            for one in ("--no-warnings", "--expose-gc", "--enable-source-maps", "--trace-warnings")
        ),
        ("node", "--require", "path"),
    ],
)
def test_a_real_interpreter_runs_the_script_that_is_named(
    tmp_path: Path, options: Sequence[str]
) -> None:
    """The script ends with exit code 7: nothing else was run."""
    if shutil.which(options[0]) is None:
        pytest.skip(f"needs {options[0]}")
    script = tmp_path / "job"
    programs = {"python3": "raise SystemExit(7)", "node": "process.exit(7)"}
    script.write_text(f"\n{programs.get(options[0], 'exit 7')}\n")
    words = (*options, str(script))
    assert subprocess.run(words, capture_output=True, check=False, cwd=tmp_path).returncode == 7
    assert name_of_code(words) == "job"


@given(
    st.sampled_from(
        [
            ("python3", "bBdEIOsSuv"),
            ("node", "i"),
            ("perl", "wWT"),
            ("ruby2.7", "wls"),
            ("bash", "euxf"),
        ]
    ),
    st.data(),
    st.lists(st.text() | st.from_regex(r"[\w/]+\.(py|sh|js|pl|rb)", fullmatch=True), max_size=3),
)
def test_no_program_text_and_no_argument_is_ever_shown(
    interpreter: tuple[str, str], data: st.DataObject, words: list[str]
) -> None:
    name, flags = interpreter
    options = data.draw(st.lists(st.sampled_from([f"-{flag}" for flag in flags]), max_size=3))
    text = "-c" if name in {"python3", "bash"} else "-e"
    assert name_with_script(name, [*options, text, *words]) == name


def test_the_parts_of_the_memory_of_a_process() -> None:
    status = proc.parse_status(
        b"Name:\tx\nVmHWM:\t  40 kB\nVmRSS:\t  30 kB\nRssAnon:\t  10 kB\n"
        b"RssShmem:\t  5 kB\nVmSwap:\t  7 kB\nSigIgn:\t0000000000001000\n"
        b"FDSize:\t64\nVmLck:\t  8 kB\n"
    )
    sizes = (status.peak_bytes, status.rss_bytes, status.anonymous_bytes, status.shmem_bytes)
    assert sizes == (40 * 1024, 30 * 1024, 10 * 1024, 5 * 1024)
    assert status.swap_bytes == 7 * 1024
    assert (status.locked_bytes, status.open_files_bound) == (8 * 1024, 64)
    zombie_in_gvisor = b"State:\tZ (zombie)\nVmSize:\t0 kB\nVmRSS:\t0 kB\nVmData:\t0 kB\n"
    assert proc.parse_status(zombie_in_gvisor).rss_bytes is None
