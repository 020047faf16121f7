"""The report page as one HTML document, with data, scripts and styles. It fetches nothing."""

import base64
import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from string import Template

from profiler.core.errors import TaskProfilerError
from profiler.report_page.page_data import PageData

# Modules import each other by these names: in the page by its import map, in Node by package.json.
_MODULE_PREFIX = "#page/"
# The modules are data: addresses in the import map. Plotly makes pictures of data: and blob:
# addresses.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src "
    "data: blob:; base-uri 'none'"
)


def read_assets() -> Mapping[str, str]:
    """Read the parts of the page that do not depend on the data, by their names in the document,
    from the package.
    """
    folder = resources.files("profiler.report_page") / "assets"
    try:
        plotly = (folder / "plotly-basic.min.js").read_text("utf-8")
    except FileNotFoundError as error:  # the container image of the monitor leaves it out
        raise TaskProfilerError(
            "The monitor's image lacks the chart library of the page: run this command where "
            "task-profiler is installed with pip."
        ) from error
    return {
        "document": (folder / "page.html").read_text("utf-8"),
        "style": (folder / "page.css").read_text("utf-8"),
        "plotly": plotly,
        "check": (folder / "browser_check.js").read_text("utf-8"),
        "modules": _import_map(
            {file.name: file.read_text("utf-8") for file in (folder / "modules").iterdir()}
        ),
    }


def render_page(
    data: PageData, assets: Mapping[str, str], *, title: str, missing: Sequence[str] = ()
) -> str:
    """Render the document around the data. ``missing``: sentences why its runs are only a part."""
    # The end tag is in scripts only within strings, where both spellings mean the same.
    scripts = {name: assets[name].replace("</script", "<\\/script") for name in ("check", "plotly")}
    texts = {"policy": _POLICY, "title": escape(title), "data": data.text, "series": data.series}
    texts["missing"] = "".join(
        f'\n<p class="panel" role="note">{escape(sentence)}</p>' for sentence in missing
    )
    return Template(assets["document"]).substitute(
        {**assets, **scripts, **texts}, activity=data.activity
    )


def _import_map(modules: Mapping[str, str]) -> str:
    """The import map that holds all modules as data: addresses, so that a page needs no other
    file.
    """
    imports = {}
    for name, module in modules.items():
        source = f"{module}//# sourceURL=page/{name}\n"  # the name in the browser's developer tools
        encoded = base64.b64encode(source.encode()).decode("ascii")
        imports[_MODULE_PREFIX + name] = f"data:text/javascript;base64,{encoded}"
    return json.dumps({"imports": imports})
