"""A name is suggested for a wrong one only if it is near."""

from collections.abc import Sequence

from profiler.core.similar_names import correct_name, near_name
from tests.cases import each_case

COMMANDS = ("compare", "doctor", "report", "run", "setup", "show", "stack", "proof")


@each_case(
    ("name", "known", "meant"),
    [
        *((name, COMMANDS, "") for name in ("stop", "start", "export", "profile", "stats", "diff")),
        *(
            (name, COMMANDS, meant)
            for name, meant in (
                ("rnu", "run"),
                ("shwo", "show"),
                ("runs", "run"),
                ("comprae", "compare"),
                ("doctr", "doctor"),
                ("Setup", "setup"),
            )
        ),
        ("/ecs/foo", ("/ecs/bar", "/ecs/batch"), ""),
        ("/ecs/job", ("/ecs/web", "/ecs/jobs"), "/ecs/jobs"),
        ("27", ("26", "2"), ""),
        ("daily-report", ("nightly-report",), ""),
        ("orders", ("nightly-billing", "nightly-orders"), "nightly-orders"),
        ("nightly_orders", ("nightly-billing", "nightly-orders"), "nightly-orders"),
        ("seq-align", ("seq-bismark-fastqc", "seq-bismark-align"), "seq-bismark-align"),
        ("night", ("nightly-etl",), "nightly-etl"),
    ],
)
def test_only_a_near_name_is_suggested(name: str, known: Sequence[str], meant: str) -> None:
    assert (near_name(name, known) or "") == meant


def test_a_variable_with_the_words_of_a_setting_is_not_its_misspelled_name() -> None:
    assert correct_name("SCOPE_OF_TEAM", ("SCOPE",)) is None
    assert correct_name("SCPOE", ("SCOPE",)) == "SCOPE"
