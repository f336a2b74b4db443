"""The documentation holds together: links lead somewhere, every page can be found, files that it names are
there, figures were measured, and a page asks nobody for anything."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from millstream.broker.transactions.transaction import TRANSITIONS
from millstream.pipeline.dsl.load import load_topology
from tools.reference.metrics import exposed_name, families
from tools.reference.pages import pages

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "millstream"
PAGES = sorted(DOCS.rglob("*.md"))
OUTSIDE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]

_FENCED = re.compile(r"^(?:```|~~~).*?^(?:```|~~~)$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
_FOLDERS = ("src", "tests", "bench", "tools", "docs")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(page: Path) -> str:
    return _FENCED.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """As the site makes them of headings."""
    from markdown.extensions.toc import slugify

    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {slugify(re.sub(r"[`*]|\[([^\]]+)\]\([^)]*\)", r"\1", heading), "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, *OUTSIDE], ids=name)
def test_links_lead_to_pages_and_headings_that_are_there(page: Path) -> None:
    for link in _LINK.findall(prose(page)):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: there is no {target}"
        if anchor:
            assert anchor in anchors(target), f"{link}: no such heading; there are {sorted(anchors(target))}"


def in_navigation(entry: object) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        for part in entry.values():
            yield from in_navigation(part)
    elif isinstance(entry, list):
        for part in entry:
            yield from in_navigation(part)


def test_every_page_is_in_the_navigation_once() -> None:
    listed = list(in_navigation(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    assert sorted(listed) == [str(page.relative_to(DOCS)) for page in PAGES], "add it to mkdocs.yml"


def named_files(page: Path) -> Iterator[str]:
    """What looks like a file of this repository: a path in backquotes that begins with a folder of ours."""
    packages = {path.name for path in PACKAGE.iterdir() if path.is_dir()} | {"kernel"}
    for found in re.findall(r"`([\w./-]+/[\w./-]*\w+\.(?:py|pyx|md|json|toml|yml))`", prose(page)):
        if found.split("/")[0] in {*packages, *_FOLDERS}:
            yield found


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    for found in named_files(page):
        places = [ROOT / found, PACKAGE / found, PACKAGE / "pipeline" / found]
        assert any(place.exists() for place in places), f"{found} is not in the repository"


def blocks(page: Path, language: str = r"\w*") -> list[str]:
    """Fenced blocks of a page, including those in a list."""
    return re.findall(
        rf"^ *```{language}(?: [^\n]*)?\n(.*?)^ *```$", page.read_text(), re.MULTILINE | re.DOTALL
    )


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every command line of ours in a page's blocks, whatever the prompt."""
    for block in blocks(page):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r" \| | && |; ", re.sub(r"\s#.*", "", line)):
                if found := re.match(r"\s*(?:\w*\$ )?(millstream [a-z].*)", part):
                    yield found[1].split()


WRITTEN = [page for page in [ROOT / "README.md", *PAGES] if page.parent.name != "reference"]


@pytest.fixture(scope="module")
def options() -> dict[str, set[str]]:
    """Every command that does something, and its options."""
    every = {
        page.path: {
            word.rstrip(",").partition("=")[0]
            for _, entries in page.sections
            for entry in entries
            for word in entry.term.split()
            if word.startswith("-")
        }
        for page in pages()
    }
    return {path: used for path, used in every.items() if not any(f"{path} " in other for other in every)}


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_commands_and_their_options_are_there(page: Path, options: dict[str, set[str]]) -> None:
    for words in commands(page):
        path = next((" ".join(words[:size]) for size in (3, 2) if " ".join(words[:size]) in options), None)
        assert path, f"{' '.join(words)}: there is no such command"
        used = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert used <= options[path], f"{' '.join(words)}: no {used - options[path]}"


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_examples_in_python_are_python(page: Path) -> None:
    for block in blocks(page, "python"):
        if not block.lstrip().startswith("."):  # the middle of a chain of calls
            ast.parse(textwrap.dedent(block), f"{name(page)}")


def test_the_pipeline_of_the_readme_can_be_run(tmp_path: Path) -> None:
    code = blocks(ROOT / "README.md", "python")[0]
    (tmp_path / "payments.py").write_text(code)
    flow = load_topology(tmp_path / "payments.py")
    assert flow.check() == []
    assert len([line for line in code.splitlines() if line]) <= 20


def test_the_states_of_a_transaction_are_those_of_the_code() -> None:
    rows = re.findall(
        r"^\| (`\w+`) \| ((?:`\w+`(?:, )?)+) \|$",
        prose(DOCS / "explanations" / "transactions.md"),
        re.MULTILINE,
    )
    drawn = {state.strip("`"): set(re.findall(r"\w+", follow)) for state, follow in rows}
    assert drawn == {
        state.value: {each.value for each in follow} for state, follow in TRANSITIONS.items() if follow
    }


def test_pages_that_code_names_are_there() -> None:
    for source in (*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").rglob("*.py")):
        for page in re.findall(r"\bdocs/[\w./-]+\.md\b", source.read_text()):
            assert (ROOT / page).exists(), f"{source.relative_to(ROOT)} names {page}"


def test_every_package_is_on_the_map() -> None:
    text = (DOCS / "architecture.md").read_text()
    for package in sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()):
        assert re.search(rf"\b{package}\b", text), f"the architecture does not tell of {package}/"


WITH_FIGURES = [ROOT / "README.md", DOCS / "explanations" / "acks.md", DOCS / "explanations" / "delivery.md"]


@pytest.mark.parametrize("page", WITH_FIGURES, ids=name)
def test_figures_in_tables_were_measured(page: Path) -> None:
    """A cell that is a figure, with or without its unit, has a figure from the benchmarks."""
    measured = set(re.findall(r"\d[\d,.]*", (DOCS / "measured" / "benchmarks.md").read_text()))
    cells = [
        cell.strip()
        for line in prose(page).splitlines()
        if line.startswith("| ")
        for cell in line.strip("|").split("|")[1:]
    ]
    figures = [match.group(1) for cell in cells if (match := re.fullmatch(r"(\d[\d,.]*)( \D.*)?", cell))]
    assert figures
    assert [figure for figure in figures if figure not in measured] == []


def test_the_rules_for_prometheus_ask_for_metrics_that_there_are() -> None:
    page = (DOCS / "operations" / "alarms.md").read_text()
    (text,) = re.findall(r'```yaml title="millstream-rules.yml"\n(.*?)```', page, re.DOTALL)
    rules = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
    known = {exposed_name(family) for family in families()}
    known |= {f"{family.name}_bucket" for family in families() if family.type == "histogram"}
    for rule in rules:
        asked = set(re.findall(r"\bmillstream_\w+", rule["expr"]))
        assert asked or "up{" in rule["expr"], rule
        assert asked <= known, f"{rule['alert']}: {asked - known}"
    assert len({rule["alert"] for rule in rules}) == len(rules)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as ``make docs`` does: a warning is an error."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    directory = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(directory), strict=True))
    return directory


def test_the_site_has_every_page(site: Path) -> None:
    built = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    assert {str(page.relative_to(DOCS).with_suffix(".html")) for page in PAGES} <= built


def test_no_page_of_the_site_asks_another_server_for_anything(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        loaded = re.findall(r"<(?:script|img|iframe|source|embed)\b[^>]*\bsrc=[\"']?([^\"' >]+)", text)
        loaded += re.findall(r"<link\b[^>]*\bhref=[\"']?([^\"' >]+)", text)
        outside = [link for link in loaded if re.match(r"(https?:)?//", link)]
        assert outside == [], f"{page.relative_to(site)}: {outside}"
        assert 'class="mermaid"' not in text, "diagrams are drawn by a program that is fetched from elsewhere"
    for style in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//|@import", style.read_text()), style.name
