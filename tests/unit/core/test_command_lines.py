from profiler.core.command_lines import command_line


def test_a_command_without_a_place_is_its_words() -> None:
    assert command_line("show", "0123") == "task-profiler show 0123"


def test_a_command_names_its_source_and_its_region() -> None:
    line = command_line("recommend", source="https://search:9200", region="eu-west-1")
    assert line == "task-profiler recommend --from https://search:9200 --region eu-west-1"


def test_a_log_group_is_preferred_to_another_source() -> None:
    line = command_line("show", log_group="/ecs/jobs", source="https://search:9200")
    assert line == "task-profiler show --from logs:/ecs/jobs"


def test_a_word_for_another_program_is_quoted() -> None:
    assert command_line("show", "a; rm -rf ~") == "task-profiler show 'a; rm -rf ~'"


def test_a_command_is_one_line() -> None:
    assert "\n" not in command_line("show", "a\nb")
