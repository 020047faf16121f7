import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.readers.linux.script_names import name_with_script


@pytest.mark.parametrize(
    ("name", "arguments", "shown"),
    [
        ("python3", ("export.py", "--date", "2026-11-20"), "python3 export.py"),
        ("python3.11", ("-u", "/srv/etl/export.py"), "python3.11 export.py"),
        ("node", ("--max-old-space-size=4096", "dist/main.mjs"), "node main.mjs"),
        ("bash", ("-eu", "./run.sh", "secret"), "bash run.sh"),
        ("perl", ("-w", "load.pl"), "perl load.pl"),
        ("php", ("-d", "memory_limit=1G", "load.php"), "php"),
        ("python3", ("-W", "ignore", "job.py"), "python3"),
        ("python3", ("-m", "etl", "job.py"), "python3"),
        ("python3", ("-c", "import/of/token.py"), "python3"),
        ("python3", ("-uc", "x.py"), "python3"),
        ("node", ("--eval", "token.js"), "node"),
        ("node", ("-r", "hook.js", "main.js"), "node"),
        ("bash", ("-ec", "run.sh"), "bash"),
        ("bash", ("-o", "pipefail", "run.sh"), "bash"),
        ("python3", ("job",), "python3"),
        ("python3", ("password=x y.py",), "python3"),
        ("python3", (), "python3"),
        ("sort", ("data.py",), "sort"),
    ],
)
def test_the_name_of_an_interpreter_has_its_script_and_nothing_else(
    name: str, arguments: tuple[str, ...], shown: str
) -> None:
    assert name_with_script(name, arguments) == shown


@given(
    st.sampled_from(["python3", "node", "perl", "ruby2.7", "sh", "bash"]),
    st.lists(st.from_regex(r"-[a-z]{1,3}", fullmatch=True), max_size=3),
    st.sampled_from(["-c", "-cprint", "-uc"]),
    st.lists(st.text() | st.from_regex(r"[\w/]+\.(py|sh|js|pl|rb)", fullmatch=True), max_size=3),
)
def test_no_program_text_and_no_argument_is_ever_shown(
    name: str, options: list[str], text: str, words: list[str]
) -> None:
    assert name_with_script(name, [*options, text, *words]) == name
