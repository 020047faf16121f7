"""tools/site_hooks.py: a page of the site has the content that GitHub shows."""

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.documentation import ROOT, pages
from tools.site_hooks import BrokenLinkError, indent_lists, link_to_repository

REPOSITORY = "https://github.com/task-profiler/task-profiler"
DOCS = [page for page in pages() if page.parts[0] == "docs"]


def html(markdown: str) -> str:
    """The page as GitHub renders it. An empty line between items adds paragraphs, which say nothing."""
    return re.sub(r"</?p>|\n", "", MarkdownIt().enable("table").render(markdown))


@pytest.mark.parametrize("page", DOCS, ids=str)
def test_a_page_keeps_its_content(page: Path) -> None:
    text = (ROOT / page).read_text()
    assert html(indent_lists(text)) == html(text)


def test_lists_are_indented_by_four_and_begin_after_an_empty_line() -> None:
    text = "Intro:\n1. One\n   two\n\n   ```sh\n   run\n     it\n   ```\n   - inner\n     text\n2. Next\nEnd\n"
    assert indent_lists(text) == (
        "Intro:\n\n1. One\n    two\n\n    ```sh\n    run\n      it\n    ```\n\n"
        "    - inner\n        text\n2. Next\nEnd\n"
    )


def test_links_out_of_the_documentation_lead_to_the_repository() -> None:
    text = (
        "[a](../lambda/template.yaml) [b](../taskdef) [c](../SECURITY.md#reporting) [d](image.md)\n\n[e]: ../Makefile\n"
    )
    assert link_to_repository(text, "deployment.md", REPOSITORY, "v1") == (
        f"[a]({REPOSITORY}/blob/v1/lambda/template.yaml) [b]({REPOSITORY}/tree/v1/taskdef) "
        f"[c]({REPOSITORY}/blob/v1/SECURITY.md#reporting) [d](image.md)\n\n[e]: {REPOSITORY}/blob/v1/Makefile\n"
    )
    inside = "[a](../cost.md) [b](../how-to/clusters.md)"
    assert link_to_repository(inside, "how-to/aws-batch.md", REPOSITORY, "v1") == inside


def test_a_link_to_a_file_that_is_not_there_fails() -> None:
    with pytest.raises(BrokenLinkError, match=r"docs/how-to/x\.md has a link to lambda/gone\.py"):
        link_to_repository("[a](../../lambda/gone.py)", "how-to/x.md", REPOSITORY, "main")
