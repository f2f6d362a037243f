"""What the documents say exists, exists: tests, files, verbs and options."""

import json
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def named(path):
    return str(path.relative_to(ROOT))


def test_security_names_real_tests():
    names = re.findall(r"`(tests/[\w/.-]+)::(\w+)`", (ROOT / "SECURITY.md").read_text())
    assert len(names) > 40
    missing = [f"{file}::{test}" for file, test in names
               if not re.search(rf"(def|void) {test}\(", (ROOT / file).read_text())]
    assert not missing


def test_every_promise_has_a_test():
    table = (ROOT / "SECURITY.md").read_text().split("## Promises")[1].split("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 20
    assert not [row for row in rows if "::test_" not in row]


def test_every_row_about_prompts_and_approvals_has_tests():
    text = (ROOT / "tests/escape/README.md").read_text()
    table = text.split("row by row")[1].split("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| E")]
    covered = set()
    for first, last in re.findall(r"^\| E(\d+)(?:-E(\d+))?", "\n".join(rows), re.MULTILINE):
        covered |= set(range(int(first), int(last or first) + 1))
    assert covered == {*range(5, 13), *range(118, 130)}
    written = "".join(path.read_text() for path in ROOT.glob("tests/*/test_*.py"))
    assert not [name for name in re.findall(r"`(test_\w+)`", text) if f"def {name}(" not in written]


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), target


def anchors(document):
    """The places in a document that a link can name: those marked, and those made from headings."""
    text = document.read_text()
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings} | {
        *re.findall(r'<a id="([^"]+)">', text)}


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_anchors_of_links_exist(document):
    for target, anchor in re.findall(r"\]\(([^):#]*)#([^)]*)\)", document.read_text()):
        assert anchor in anchors(document.parent / target if target else document), anchor


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_files_that_are_named_exist(document):
    """Names of our own folders in code marks; patterns and placeholders are not names."""
    pattern = r"`((?:src|tests|tools|docs|man|bench|examples|include|data)/[\w./-]+)`"
    missing = [name for name in re.findall(pattern, document.read_text())
               if not re.search("NAME|VERB", name) and not (ROOT / name).exists()]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_options_that_are_shown_exist(document, run):
    """Only lines that show a command."""
    for verb, words in re.findall(r"\$ sandbox (\w+) (.*)", document.read_text()):
        help_text = run(verb, "--help").stdout
        ours = words.split(" -- ")[0].split("'")[0].split("|")[0]
        for option in re.findall(r"(?:^|\s)(--[a-z][a-z-]+)", ours):
            assert option in help_text, f"sandbox {verb} {option}"


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) < 200


def test_result_keys_are_documented(caller):
    result = json.loads(caller.run("run", "--static", "--json", "--", "true").stdout)
    text = (ROOT / "docs/RESULTS.md").read_text()
    keys = [*result, *result["resourceUsage"]]
    assert not [key for key in keys if key not in text]


def test_audit_events_are_documented():
    """By the names in the source, which are few and written out."""
    pattern = re.compile(r'decisions_record\(decisions, "([a-z.]+)"|'
                         r'"((?:session|log|chain|grant|protection)\.[a-z]+|policy\.(?:un)?trust)"')
    sources = [*ROOT.glob("src/session/*.c"), *ROOT.glob("src/audit/*.c"), *ROOT.glob("src/policy/*.c")]
    found = {"".join(groups) for source in sources
             for groups in pattern.findall(source.read_text())} - {"chain.head", "grants.lock"}
    assert {"decision", "session.start", "grant.add", "log.torn"} <= found  # the control
    text = (ROOT / "docs/AUDIT.md").read_text()
    assert not [name for name in sorted(found) if f"`{name}`" not in text]
