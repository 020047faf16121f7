"""The page: data, programs and styles in one HTML text that fetches nothing. Pure."""

from html import escape

from msgspec import Struct

# Plotly draws heatmaps as data: images and offers pictures as blob: addresses.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"
)


class Assets(Struct, frozen=True, kw_only=True):
    """The parts of the page that are the same for all data."""

    body: str
    style: str
    plotly: str
    programs: tuple[str, ...]


def render_page(data: str, assets: Assets, *, title: str) -> str:
    """The whole document around a block that ``profiler.dashboard.data`` made."""
    program = "(() => {\n'use strict';\n" + "\n".join(assets.programs) + "\n})();"
    return "\n".join(
        (
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{escape(title)}</title>",
            '<link rel="icon" href="data:,">',
            f"<style>\n{assets.style}</style>",
            "</head>",
            "<body>",
            assets.body,
            f'<script type="application/json" id="task-data">{data}</script>',
            f"<script>{_inside_script(assets.plotly)}</script>",
            f"<script>{_inside_script(program)}</script>",
            "</body>",
            "</html>",
            "",
        )
    )


def _inside_script(program: str) -> str:
    r"""In a program the end tag of a script stands in strings only, where ``<\/`` means the same."""
    return program.replace("</script", "<\\/script")
