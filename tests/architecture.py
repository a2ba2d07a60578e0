"""`make architecture` prints the sizes of folders, files, classes and functions; they are information, not limits."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ("shared_schema", "cdc_consumer", "applier")
SHOWN = 8


def _files() -> Iterator[tuple[Path, str]]:
    for package in SHIPPED:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT), path.read_text()


def _lines(node: ast.FunctionDef | ast.ClassDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def main() -> None:
    """Print the largest of each kind."""
    folders: Counter[str] = Counter()
    files: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    for path, text in _files():
        if path.name != "__init__.py":
            folders[str(path.parent)] += 1
        files[str(path)] = text.count("\n")
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.ClassDef():
                    methods = [n for n in node.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]
                    classes[f"{path}: {node.name}"] = len(methods)
                case ast.FunctionDef():
                    functions[f"{path}: {node.name}"] = _lines(node)
    for title, sizes in (
        ("modules per folder", folders),
        ("lines per file", files),
        ("public methods per class", classes),
        ("lines per function", functions),
    ):
        ordered = sorted(sizes.values())
        print(f"{title}: median {ordered[len(ordered) // 2]}, largest:")
        for name, size in sizes.most_common(SHOWN):
            print(f"  {size:5}  {name}")


if __name__ == "__main__":
    main()
