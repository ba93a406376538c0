"""Every command of the documentation runs in a fresh clone and prints what the page shows.

Where a page shows another output: make docs
"""

import importlib.util
import re
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import takewhile

import pytest

import traceview
from tests.docs.blocks import LEFT_OUT, RUN, Block, blocks_of, command_of, excerpt, pages
from tests.docs.clone import fresh_clone, rendered_python, rendered_shell
from tests.docs.questions import with_questions
from tests.docs.tried import with_tried
from tests.places import REPOSITORY

pytestmark = pytest.mark.programs

BLOCKS = [block for page in pages() for block in blocks_of(page)]
COMMANDS = [b for b in BLOCKS if b.language in ("console", "bash") and not b.not_run]
PYTHON = {
    page.name: [b for b in blocks_of(page) if b.language == "pycon" and not b.not_run]
    for page in pages()
}
NOT_RUN = [block for block in BLOCKS if block.not_run]
REASONS = {
    "needs a GPU",
    "needs a GPU and nsys",
    "needs nsys",
    "needs files of your own",
    "installs packages",
    "sets up the development tools",
    "takes minutes",
}
MOST_NOT_RUN = 28
LANGUAGES = {*RUN, "diff", "json", "python", "sql", "text", "toml", "yaml"}

needs_triton = pytest.mark.skipif(
    not (importlib.util.find_spec("triton") and importlib.util.find_spec("torch")),
    reason="needs triton and torch",
)


def of_the_program(word: str, verb: str) -> bool:
    """True from the word on that begins the recorded program's own."""
    return word == "--" or (verb == "record" and word.endswith(".py"))


def marks_of(block: Block) -> list[pytest.MarkDecorator]:
    """`bench` runs each version in Triton's interpreter."""
    runs, compiles = "traceview bench" in block.text, "ptx" in block.text
    return [needs_triton] * (runs or compiles) + [pytest.mark.programs] * runs


@pytest.mark.parametrize(
    "block",
    [pytest.param(block, marks=marks_of(block), id=str(block)) for block in COMMANDS],
)
def test_the_commands_print_what_the_page_shows(block, tmp_path):
    assert rendered_shell(block, fresh_clone(tmp_path)) == block.text, "run make docs"


@needs_triton
@pytest.mark.parametrize("page", [page for page, blocks in PYTHON.items() if blocks])
def test_the_python_prints_what_the_page_shows(page, tmp_path):
    blocks = PYTHON[page]
    texts = [block.text for block in blocks]
    assert rendered_python(blocks, fresh_clone(tmp_path)) == texts, "run make docs"


def test_few_blocks_are_not_run_and_each_says_why():
    assert {block.not_run for block in NOT_RUN} <= REASONS
    assert len(NOT_RUN) <= MOST_NOT_RUN


@pytest.mark.parametrize("verb", ["record", "report", "ptx", "bench", "scrub", "doctor"])
def test_commands_that_are_not_run_have_only_options_that_exist(verb):
    lines = [
        shlex.split(command.removeprefix("$ "), comments=True)
        for block in NOT_RUN
        if block.language in RUN
        for command in block.commands
    ]
    used = {
        word.partition("=")[0]
        for words in lines
        if words[:2] == ["traceview", verb]
        for word in takewhile(lambda word: not of_the_program(word, verb), words[2:])
        if word.startswith("--")
    }
    if used:
        program = [sys.executable, "-m", "traceview", verb, "--help"]
        said = subprocess.run(program, capture_output=True, text=True, check=True).stdout
        assert used <= set(re.findall(r"--[a-z][a-z-]*", said))


def test_make_has_the_targets_that_the_pages_name():
    named = re.findall(
        r"^make ([a-z -]+?)(?: [A-Z]| *#|$)", "\n".join(b.text for b in NOT_RUN), re.M
    )
    targets = re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert {target for names in named for target in names.split()} <= set(targets)
    assert len(named) > 5


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_code_stands_in_fenced_blocks_of_a_known_language(page):
    text = page.read_text()
    for block in blocks_of(page):
        assert block.language in LANGUAGES, block
        text = text.replace(f"```{block.language}\n{block.text}```", "")
    assert "```" not in text
    assert not re.search(r"(?:^|\n)\n {4}\S", text), "an indented block is not run"


def test_the_table_of_questions_is_that_of_the_analyses():
    for page in pages():
        assert with_tried(with_questions(page.read_text())) == page.read_text(), "run make docs"


@pytest.mark.parametrize(
    ("shown", "lines"),
    [
        ("", ["a", "b", "c", "d"]),
        ("2", ["a", "b", LEFT_OUT]),
        ("4", ["a", "b", "c", "d"]),
        ('1; "c" 1', ["a", LEFT_OUT, "c", LEFT_OUT]),
        ('"b" 3', [LEFT_OUT, "b", "c", "d"]),
        ('"b" to "c"', [LEFT_OUT, "b", "c", LEFT_OUT]),
    ],
)
def test_an_excerpt_marks_what_it_leaves_out(shown, lines):
    assert excerpt("a\nb\nc\nd\n", shown) == lines


def test_a_block_is_read_with_its_mark(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.docs.blocks.REPOSITORY", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        'text\n\n<!-- shown: "b" 1 -->\n```console\n$ echo a \\\n> b\na b\n$ true\n```\n'
    )
    (block,) = blocks_of(page)
    assert (block.page, block.line, block.shown) == ("page.md", 5, '"b" 1')
    statements = list(block.statements())
    assert statements == [("$ echo a \\\n> b", ["a b"]), ("$ true", [])]
    assert command_of(statements[0][0]) == "echo a \\\nb"


def test_queries_run_on_a_file_of_ours(tmp_path, unpack):
    traceview.convert(unpack("training"), tmp_path / "training.sqlite")
    queries = [block.text for block in BLOCKS if block.language == "sql"]
    assert queries
    with closing(sqlite3.connect(tmp_path / "training.sqlite")) as connection:
        for query in queries:
            name, calls, total_ns = connection.execute(query).fetchall()[0]
            assert (type(name), type(calls), type(total_ns)) == (str, int, int)
