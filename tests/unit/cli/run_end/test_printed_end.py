"""The end of ``run`` as bytes."""

from profiler.cli.run_end.printed_end import printed_summary


def test_a_summary_is_wrapped_to_its_width_and_nothing_stays_nothing() -> None:
    sentence = "Median of 30 runs: 12.4 s (11.9 to 13.0 s), memory peak 1.7 GB (900 MB to 1.8 GB)."
    lines = printed_summary(sentence, is_file=True).decode().split("\n")
    assert (lines[0], lines[-1], " ".join(lines[1:-1])) == ("", "", sentence)
    assert max(map(len, lines)) <= 80
    assert printed_summary("", is_file=True) == b""
