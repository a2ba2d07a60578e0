"""What is true or false of the whole tree: layers, purity, names, the glossary, and which test covers which module.

Sizes are not judged here: `make architecture` prints them, to be read.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ("shared_schema", "cdc_consumer", "applier")
IO_LIBRARIES = ("psycopg", "pyspark", "confluent_kafka", "deltalake")
BINARIES = {"pg-trickle-cdc": ("cdc_consumer", "shared_schema"), "pg-trickle-applier": ("applier", "shared_schema")}

PRIVATE_ENGLISH = re.compile(r"(?<![a-z])(told|asked|anew|whoever|somebody|upright|leaning)(?![a-z])")
"""Words that no identifier is made of: the glossary has better ones."""


def _modules(package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _contracts() -> list[dict[str, object]]:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("package", ["applier", "applier.operators", "applier.refresh", "cdc_consumer"])
def test_layers_name_every_module(package: str) -> None:
    """import-linter itself checks the imports; a layer that is not listed would not be checked at all."""
    (contract,) = [c for c in _contracts() if c.get("containers") == [package]]
    assert contract["exhaustive"] is True
    layers = contract["layers"]
    assert isinstance(layers, list)
    listed = {name.strip() for layer in layers for name in layer.split("|")}
    folder = ROOT / package.replace(".", "/")
    there = {p.stem for p in folder.glob("*.py") if p.stem != "__init__"}
    there |= {p.name for p in folder.iterdir() if (p / "__init__.py").exists()}
    assert listed == there


def _code_blocks(section: str) -> list[str]:
    text = (ROOT / "docs" / "architecture.md").read_text()
    return re.findall(r"^```\n(.*?)^```", text.partition(f"\n## {section}\n")[2], re.MULTILINE | re.DOTALL)


def _described_modules() -> list[str]:
    """The modules of the layout in docs/architecture.md; a folder is indented below the one that it is in."""
    found, folders = [], [""]
    for line in _code_blocks("Layout")[0].splitlines():
        for word in line.split():
            if word.endswith("/"):
                depth = (len(line) - len(line.lstrip())) // 2
                folders[depth:] = [word]
            else:
                found.append("".join(folders) + word)
    return found


def test_the_documentation_lists_every_module() -> None:
    java = ROOT / "applier/jvm/src/main/java/io/pgtrickle/spark"
    there = [f"applier/jvm/{path.relative_to(java).with_suffix('')}" for path in java.rglob("*.java")]
    for package in SHIPPED:
        there += [
            str(path.relative_to(ROOT).with_suffix("")) for _, path in _modules(package) if path.stem != "__init__"
        ]
    assert sorted(_described_modules()) == sorted(there)


@pytest.mark.parametrize("package", ["applier", "cdc_consumer"])
def test_the_documentation_lists_every_layer(package: str) -> None:
    (contract,) = [c for c in _contracts() if c.get("containers") == [package]]
    layers = contract["layers"]
    assert isinstance(layers, list)
    assert f"`{' > '.join(layers)}`" in (ROOT / "docs" / "architecture.md").read_text()


def test_the_documentation_lists_every_thread() -> None:
    """Threads by the name that they are started with, where it is written in the call."""
    found = {
        value.value
        for package in SHIPPED
        for _, path in _modules(package)
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Call) and re.search(r"(Thread|ThreadPoolExecutor|_workers)$", ast.unparse(node.func))
        for value in [*node.args, *(keyword.value for keyword in node.keywords)]
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    }
    assert len(found) > 10
    page = (ROOT / "docs" / "threads.md").read_text()
    assert {name for name in found if not re.search(rf"^\| `{name}(_N)?` \|", page, re.MULTILINE)} == set()


def test_a_module_that_says_it_is_pure_reaches_nothing_that_does_io() -> None:
    graph = grimp.build_graph(*SHIPPED, include_external_packages=True)
    assert set(IO_LIBRARIES) <= graph.modules
    docstrings = {name: ast.get_docstring(_tree(path)) or "" for package in SHIPPED for name, path in _modules(package)}
    pure = [name for name, text in docstrings.items() if re.search(r"\bpure\b", text, re.IGNORECASE)]
    assert len(pure) > 20
    reached = {name: chain for name in pure for io in IO_LIBRARIES if (chain := graph.find_shortest_chain(name, io))}
    assert reached == {}


@pytest.mark.parametrize("binary", BINARIES)
def test_no_public_name_has_two_meanings(binary: str) -> None:
    """Commands of a command line are named as users type them, so `cli` modules are left out."""
    defined: dict[str, set[str]] = defaultdict(set)
    for package in BINARIES[binary]:
        for name, path in _modules(package):
            if name.endswith(".cli"):
                continue
            for node in _tree(path).body:
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                    defined[node.name].add(name)
    assert {name: places for name, places in defined.items() if len(places) > 1} == {}


def test_every_name_of_the_glossary_is_in_the_code() -> None:
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    named = [(word, code) for word, code in rows if ".py`" in code]
    assert len(named) > 35
    missing = []
    for word, code in named:
        path, *names = re.findall(r"`([^`]+)`", code)
        if not (ROOT / path).exists():
            missing.append((word, path))
            continue
        tree = _tree(ROOT / path)
        there = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        there |= {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        missing += [(word, name) for name in names if not name.startswith("pgt_") and name not in there]
    assert missing == []


def test_every_module_says_what_it_is() -> None:
    silent = [name for package in SHIPPED for name, path in _modules(package) if not ast.get_docstring(_tree(path))]
    assert silent == []


NODES_OF_OPERATORS = {
    "scan", "values", "unnest", "filter", "project", "repeat", "inner_join", "outer_join", "semi_join", "aggregate",
    "union_all", "top_k", "window", "recursion",
}  # fmt: skip


@pytest.mark.parametrize("operator", sorted(NODES_OF_OPERATORS))
def test_an_operator_has_its_equation_and_an_intuition(operator: str) -> None:
    text = ast.get_docstring(_tree(ROOT / "applier" / "operators" / f"{operator}.py")) or ""
    assert re.search(r"Δ.*=", text), "no delta rule"
    assert text.count("Intuitively") == 1


def _identifiers(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                yield node.name
            case ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name


def test_identifiers_are_made_of_the_fields_words() -> None:
    found = {
        f"{module}: {name}"
        for package in SHIPPED
        for module, path in _modules(package)
        for name in _identifiers(_tree(path))
        if PRIVATE_ENGLISH.search(name.lower())
    }
    assert found == set()


SESSIONS_ARE_OPENED_IN = {
    "shared_schema.connections",
    "deploy.local.postgres",  # asks whether the server answers, and closes the session
}


def test_every_session_is_opened_with_the_pins() -> None:
    found = {
        module
        for package in (*SHIPPED, "deploy")
        for module, path in _modules(package)
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Call)
        and re.search(r"\bpsycopg\b.*\.connect$|^(Async)?Connection\.connect$", ast.unparse(node.func))
    }
    assert found == SESSIONS_ARE_OPENED_IN


# -- which test covers which module ------------------------------------------------------------------------------------


def _coverage_map() -> dict[str, list[str]]:
    found = tomllib.loads((ROOT / "tests" / "coverage_map.toml").read_text())["covered_by"]
    assert isinstance(found, dict)
    return found


def _test_stems() -> set[tuple[str, str]]:
    """(top folder below tests, stem) of every test file."""
    return {(p.relative_to(ROOT / "tests").parts[0], p.stem) for p in (ROOT / "tests").rglob("test_*.py")}


def test_every_module_has_a_test_or_a_line_that_names_one() -> None:
    stems, listed = _test_stems(), _coverage_map()
    uncovered = []
    for package in SHIPPED:
        for module, path in _modules(package):
            if path.stem == "__init__" or (package, f"test_{path.stem}") in stems:
                continue
            if not any(module == key or module.startswith(key + ".") for key in listed):
                uncovered.append(module)
    assert uncovered == []


def test_the_coverage_map_names_what_exists() -> None:
    modules = {module for package in SHIPPED for module, _ in _modules(package)}
    for module, tests in _coverage_map().items():
        assert module in modules, f"{module} is gone"
        assert tests, f"{module} names no test"
        for test in tests:
            path, _, name = test.partition("::")
            assert (ROOT / path).exists(), f"{module}: {path} is gone"
            assert not name or re.search(rf"\bdef {name}\b", (ROOT / path).read_text()), f"{module}: {test} is gone"
