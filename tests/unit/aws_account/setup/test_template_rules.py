"""Contradictory parameters, found in the template as CloudFormation finds them."""

from itertools import product

import pytest

from profiler.aws_account.setup.template_parameters import parameter_defaults, parameter_values
from profiler.aws_account.setup.template_rules import check_rules
from profiler.core.errors import UsageError
from tests.cloudformation import TEMPLATE, broken_rules, template

WHOLE = TEMPLATE.read_text()
# Two values of each parameter that a rule names.
CHOICES = {
    "ElasticsearchUrl": ("", "https://search"),
    "TaskStopped": ("true", "false"),
    "OpenSearchArn": ("", "arn:aws:es:eu-west-1:123456789012:domain/a"),
    "SearchEngine": ("elasticsearch", "opensearch"),
    "ElasticsearchSecretId": ("", "search"),
    "OtlpEndpoint": ("", "https://otlp"),
    "OtlpSecretId": ("", "otlp"),
    "SlackSuccessChannel": ("", "#jobs"),
    "Ingestion": ("direct", "stream"),
    "Subscribe": ("groups", "account"),
    "InstanceMonitorCluster": ("", "jobs"),
    "SubnetIds": ("", "subnet-0a"),
    "DigestSchedule": ("", "rate(1 day)"),
}


def sentences(values: dict[str, str]) -> str:
    try:
        check_rules(WHOLE, values)
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.slow
def test_each_choice_breaks_the_rules_that_a_parser_of_yaml_finds() -> None:
    seen: set[str] = set()
    defaults = parameter_defaults(WHOLE)
    for chosen in product(*CHOICES.values()):
        given = dict(zip(CHOICES, chosen, strict=True))
        values = {**defaults, **given}
        expected = broken_rules(values)
        assert sentences(values) == " ".join(expected), given
        seen.update(expected)
    rules = template()["Rules"].values()
    everything = {one["AssertDescription"] for rule in rules for one in rule["Assertions"]}
    by_themselves = ("Subscribe=account forwards", "task_stopped handles the jobs")
    rarely = {one for one in everything if one.startswith(by_themselves)}
    assert seen == everything - rarely


def test_a_rule_about_jobs_without_task_stopped_is_known() -> None:
    given = {"BatchJobs": "true", "TaskStopped": "false", "ElasticsearchUrl": "https://a"}
    values = parameter_values(WHOLE, given, {})
    assert sentences(values) == " ".join(broken_rules(values))
    assert "set TaskStopped=true" in sentences(values)


def test_a_rule_about_all_lines_of_an_account_is_known() -> None:
    given = {"Subscribe": "account", "ElasticsearchUrl": "https://a", "ForwardLogLines": "true"}
    with pytest.raises(UsageError, match="Subscribe=account forwards reports only"):
        check_rules(WHOLE, parameter_values(WHOLE, given, {}))
