"""The dropdown lists that filter a dashboard, in both formats."""

from collections.abc import Mapping, Sequence

from kibana.dashboard_model import Control, Dashboard, Json
from kibana.saved_objects import classic_visualization, data_view_reference, object_id, to_json


def classic_controls(dashboard: Dashboard, migration_versions: Mapping[str, str]) -> Json:
    """The visualization of a dashboard's dropdown lists. Pinned filters stay when the user opens another dashboard."""
    controls, references = [], []
    for number, control in enumerate(dashboard.controls):
        name = f"control_{number}_index_pattern"
        references.append(data_view_reference(name, "reports"))
        controls.append(
            {
                "id": f"{dashboard.key}-{number}",
                "fieldName": control.field,
                "parent": "",
                "label": control.label,
                "type": "list",
                "options": {"type": "terms", "multiselect": True, "dynamicOptions": True, "size": 10, "order": "desc"},
                "indexPatternRefName": name,
            }
        )
    title = f"{dashboard.title}: filters"
    params = {"controls": controls, "updateFiltersOnChange": True, "useTimeFilter": False, "pinFilters": True}
    state = {"title": title, "type": "input_control_vis", "aggs": [], "params": params}
    identity = object_id("visualization", f"{dashboard.key}-filters")
    return classic_visualization(identity, state, references, migration_versions)


def lens_controls(controls: Sequence[tuple[str, Control]]) -> Json:
    """The dropdown lists at the top of a dashboard, in the format of 8.0."""
    panels = {
        identity: {
            "order": order,
            "width": "medium",
            "grow": True,
            "type": "optionsListControl",
            "explicitInput": {
                "id": identity,
                "fieldName": control.field,
                "title": control.label,
                "selectedOptions": [],
                "enhancements": {},
            },
        }
        for order, (identity, control) in enumerate(controls)
    }
    ignored = dict.fromkeys(("ignoreFilters", "ignoreQuery", "ignoreTimerange", "ignoreValidations"), False)
    return {
        "controlStyle": "oneLine",
        "chainingSystem": "HIERARCHICAL",
        "ignoreParentSettingsJSON": to_json(ignored),
        "panelsJSON": to_json(panels),
    }
