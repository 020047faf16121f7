"""The ids of a panel's aggregations, and the metrics that share one."""

from typing import Final

from kibana.dashboard_model import TIME_FIELD, Metric, Panel, Terms

ORDER: Final = "order"
"""The name of an aggregation that no chart draws: it orders the terms."""
_NUMBER_OF_DOCUMENTS: Final = Metric(operation="count", field=TIME_FIELD, label="Documents")


def hidden_order(terms: Terms) -> Metric | None:
    """The metric that orders the terms without being drawn."""
    return _NUMBER_OF_DOCUMENTS if terms.is_by_count else terms.order_by


def grouped_metrics(panel: Panel) -> dict[str, tuple[Metric, ...]]:
    """The metrics by the id of their aggregation. The classic flavour uses the same ids.

    One aggregation computes all percentiles of a field: two aggregations would take the server twice the time.
    Kibana 8.4 and later combine them by themselves.
    """
    groups: dict[str, tuple[Metric, ...]] = {}
    first: dict[str, str] = {}
    for number, metric in enumerate(panel.metrics, start=1):
        name = str(number)
        if metric.operation == "percentile":
            name = first.setdefault(metric.field, name)
        groups[name] = (*groups.get(name, ()), metric)
    return groups


def cases_id(panel: Panel) -> str:
    """The id of the aggregation of a panel's cases."""
    return str(len(panel.metrics) + 1)


def terms_id(panel: Panel, number: int) -> str:
    """The id of a panel's terms aggregation."""
    return str(len(panel.metrics) + bool(panel.cases) + number + 1)


def time_id(panel: Panel) -> str:
    """The id of a panel's date histogram."""
    return terms_id(panel, len(panel.terms))
