"""The report page as one HTML document, with data, scripts and styles. It fetches nothing."""

import base64
import json
from collections.abc import Mapping
from html import escape
from importlib import resources
from string import Template

from msgspec import Struct

from profiler.core.errors import TaskProfilerError
from profiler.report_page.page_data import PageData

# Modules import each other by these names: in the page by its import map, in Node by package.json.
_MODULE_PREFIX = "#page/"
# The modules are data: addresses in the import map. Plotly makes pictures of data: and blob: addresses.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'"
)


class Assets(Struct, frozen=True, kw_only=True):
    """The parts of the page that do not depend on the data. ``modules`` are JavaScript modules by file name."""

    document: str
    style: str
    plotly: str
    browser_check: str
    modules: Mapping[str, str]


def read_assets() -> Assets:
    """Read the parts of the page from the installed package."""
    folder = resources.files("profiler.report_page") / "assets"
    try:
        plotly = (folder / "plotly-basic.min.js").read_text("utf-8")
    except FileNotFoundError as error:  # the container image of the monitor leaves it out
        raise TaskProfilerError(
            "The monitor's image lacks the chart library of the page: run this command where task-profiler is "
            "installed with pip."
        ) from error
    return Assets(
        document=(folder / "page.html").read_text("utf-8"),
        style=(folder / "page.css").read_text("utf-8"),
        plotly=plotly,
        browser_check=(folder / "browser_check.js").read_text("utf-8"),
        modules={file.name: file.read_text("utf-8") for file in (folder / "modules").iterdir()},
    )


def render_page(data: PageData, assets: Assets, *, title: str) -> str:
    """Render the document around the data."""
    return Template(assets.document).substitute(
        policy=_POLICY,
        title=escape(title),
        style=assets.style,
        modules=import_map(assets.modules),
        data=data.text,
        series=data.series,
        activity=data.activity,
        check=_escape_end_tag(assets.browser_check),
        plotly=_escape_end_tag(assets.plotly),
    )


def import_map(modules: Mapping[str, str]) -> str:
    """Return the import map that holds all modules as data: addresses, so that a page needs no other file."""
    imports = {}
    for name, module in modules.items():
        source = f"{module}//# sourceURL=page/{name}\n"  # the name in the browser's developer tools
        encoded = base64.b64encode(source.encode()).decode("ascii")
        imports[_MODULE_PREFIX + name] = f"data:text/javascript;base64,{encoded}"
    return json.dumps({"imports": imports})


def _escape_end_tag(script: str) -> str:
    r"""Write ``<\/script`` for the end tag, which scripts contain only in strings, where both mean the same."""
    return script.replace("</script", "<\\/script")
