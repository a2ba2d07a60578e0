"""The audit finds unlocked, vulnerable and differing versions."""

from __future__ import annotations

from pathlib import Path

from deploy.audit import audit, read_jar_lock, read_lock

DIGEST = "0" * 64


def test_this_checkout_is_sound() -> None:
    assert audit() == []


def test_what_is_not_locked_is_named() -> None:
    text = f"a==1 ; python_version < '3' \\\n    --hash=sha256:{DIGEST}\na==2 --hash=sha256:{DIGEST}\n"
    text += f"b==2\nc>=3 --hash=sha256:{DIGEST}\n"
    locked, problems = read_lock(text)
    assert locked == {"a": {"1", "2"}}
    assert problems == ["b has no digest", "c>=3 is not pinned to one version"]
    assert read_jar_lock(f"# x\n{DIGEST}  g:a:1.0\nno\n") == ({"a": {"1.0"}}, ["'no' is no digest and jar"])


def test_a_vulnerable_version_and_another_than_locked_are_named(tmp_path: Path) -> None:
    (tmp_path / "deploy" / "local").mkdir(parents=True)
    (tmp_path / "applier").mkdir()
    for name in ("requirements.lock", "requirements-dev.lock"):
        (tmp_path / name).write_text(f"pyarrow==13.0.0 --hash=sha256:{DIGEST}\n")
    (tmp_path / "applier" / "x.jars.lock").write_text(f"{DIGEST}  org.x:log4j-core:2.14.1\n")
    problems = audit(tmp_path)
    assert any("pyarrow 13.0.0 is vulnerable (CVE-2023-47248)" in problem for problem in problems)
    assert any("is installed instead of 13.0.0" in problem for problem in problems)
    assert any(problem.startswith("jar log4j-core 2.14.1 is vulnerable") for problem in problems)
