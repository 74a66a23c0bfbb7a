"""What is installed: files, stubs, the program and its configurations; docstrings and their examples."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.metadata
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fp16lab
from fp16lab import _core, program
from support import errors_of_types

FOLDER = Path(fp16lab.__file__).parent


def modules() -> list[str]:
    return ["fp16lab"] + [f"fp16lab.{m.name}" for m in pkgutil.iter_modules(fp16lab.__path__) if not m.ispkg]


@pytest.mark.parametrize("name", modules())
def test_examples_of_docstrings(name, trained, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    finder, runner = doctest.DocTestFinder(exclude_empty=True), doctest.DocTestRunner()
    examples = [test for test in finder.find(module, name, globs={"folder": trained}) if test.examples]
    if name == "fp16lab._core":
        for bound in ("Histogram", "SuggestedScale"):
            examples += [
                t for t in finder.find(getattr(_core, bound), bound, module=False, globs={}) if t.examples
            ]
        examples = list({test.name: test for test in examples}.values())
        assert examples
    for test in examples:
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def test_the_readmes_first_example_runs(monkeypatch):
    readme = Path(__file__).parents[1] / "README.md"
    if not readme.is_file():
        pytest.skip("no README.md beside the tests: this is not a checkout")
    pytest.importorskip("matplotlib").use("Agg")
    examples = re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)
    example = next(text for text in examples if "torch" not in text)
    names: dict = {}
    exec(example, names)  # noqa: S102
    assert names["p"].scale == 2**32 and names["h"].total == 512 * 512


def test_every_function_says_what_it_takes_and_shows_it():
    for name in fp16lab.__all__:
        described = getattr(fp16lab, name)
        assert described.__doc__, name
        if type(described).__name__ == "function":
            assert "Errors" in described.__doc__ or not described.__code__.co_argcount, name


def test_the_installed_files():
    files = {str(file) for file in importlib.metadata.files("fp16lab") or []}
    installed = {name for name in files if name.startswith("fp16lab/")}
    assert {
        "fp16lab/py.typed",
        "fp16lab/_core.pyi",
        "fp16lab/__init__.py",
        "fp16lab/bin/fp16lab",
    } <= installed
    assert any(re.fullmatch(r"fp16lab/_core\..*\.so", name) for name in installed)
    assert "fp16lab/share/fp16lab/configs/lenet5.toml" in installed
    kinds = {Path(name).suffix for name in installed} - {".pyc"}
    assert kinds <= {".py", ".pyi", ".typed", ".so", ".toml", ""}, "no sources, headers or static libraries"
    others = {name.split("/")[0] for name in files - installed}
    assert all(".dist-info" in name or name == ".." for name in others), others  # "..": bin/fp16lab


def test_the_licence_goes_along():
    metadata = importlib.metadata.metadata("fp16lab")
    files = importlib.metadata.files("fp16lab") or []
    named = {"LICENSE", "NOTICE", "THIRD_PARTY_NOTICES"}
    assert metadata["License-Expression"] == "Apache-2.0" and set(metadata.get_all("License-File")) == named
    texts = {file.name: file.read_text() for file in files if "dist-info/licenses" in str(file)}
    assert set(texts) == named
    assert "Version 2.0, January 2004" in texts["LICENSE"] and "The fp16lab authors" in texts["NOTICE"]
    for compiled_in in ("nanobind", "robin_map", "CLI11", "nlohmann/json", "toml++", "Highway"):
        assert compiled_in in texts["THIRD_PARTY_NOTICES"], compiled_in


def test_the_stub_names_what_the_module_has():
    tree = ast.parse((FOLDER / "_core.pyi").read_text())
    named = {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert named == {name for name in dir(_core) if not name.startswith("__")}


def test_the_types_hold(tmp_path):
    checked, errors = errors_of_types(tmp_path)
    assert [line for line in errors if "/torch/" not in line] == [], checked  # with_torch checks those
    lines = (
        'import fp16lab',
        'run = fp16lab.load_run("run")',
        'loss: float = run.rows("steps")[0]["loss"]',
        'run.rows("steps")[0]["lost"]',
        'accuracy: float = run.rows("evaluations")[0]["accuracy"]',
        'dtypes: list[str] = [operand["dtype"] for operand in run.rows("culprits")[0]["operands"]]',
        'run.rows("overflows")[0]["kind"] == "losses"',
        'run.rows("moments")',
    )
    (tmp_path / "user.py").write_text("\n".join(lines))
    checked, errors = errors_of_types(tmp_path, "user.py")
    assert [int(line.split(":")[1]) for line in errors] == [4, 5, 7, 8], checked
    assert '"lost"' in errors[0] and "float | None" in errors[1], checked


def test_the_program_runs_alone_and_finds_its_configurations(tmp_path):
    script = Path(sys.executable).with_name("fp16lab")
    if not script.exists():
        pytest.skip(f"no {script}: the package is on the path, not installed in this environment")
    version = subprocess.run(
        [script, "--version"], capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout
    assert version == program.run("--version")
    assert version.split()[1] == importlib.metadata.version("fp16lab")
    done = subprocess.run(
        [script, "train", "-c", "lenet5", "--set", "nonesuch.key=1"], capture_output=True, text=True
    )
    assert done.returncode == 2 and "nonesuch.key" in done.stderr


def test_the_module_needs_no_library_of_ours():
    """Static inside; what is left is Debian's."""
    (module,) = FOLDER.glob("_core.*.so")
    for file in (module, program.PATH):
        listed = subprocess.run(["ldd", file], capture_output=True, text=True, check=True).stdout
        names = {line.split()[0] for line in listed.splitlines()}
        assert not any("fp16lab" in name or "not found" in listed for name in names), listed
