"""All dashboards and panels, from which ``classic.py`` and ``lens.py`` generate each product's files."""

from typing import Final

from kibana.dashboard_model import Panel
from kibana.overview_panels import OVERVIEW
from kibana.right_sizing_panels import RIGHT_SIZING
from kibana.run_panels import GPU, NEURON, RUN

DASHBOARDS: Final = (OVERVIEW, RUN, RIGHT_SIZING, GPU, NEURON)
PANELS: Final[tuple[Panel, ...]] = tuple(panel for dashboard in DASHBOARDS for panel in dashboard.panels)
