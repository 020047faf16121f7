"""All dashboards, panels and saved searches, from which the classic and the Lens file are generated."""

from typing import Final

from kibana.dashboard_model import Panel, SavedSearch
from kibana.overview_panels import OVERVIEW
from kibana.right_sizing_panels import RIGHT_SIZING
from kibana.run_panels import FAILURES, GPU, NEURON, NEWEST_RUNS, RUN

DASHBOARDS: Final = (OVERVIEW, RUN, RIGHT_SIZING, GPU, NEURON)
PANELS: Final[tuple[Panel, ...]] = tuple(panel for dashboard in DASHBOARDS for panel in dashboard.charts)
SEARCHES: Final[tuple[SavedSearch, ...]] = (FAILURES, NEWEST_RUNS)
