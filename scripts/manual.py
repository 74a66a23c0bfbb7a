#!/usr/bin/env python3
"""Builds the manual, one folder of pages, and checks every link inside of it.

  scripts/manual.py                    build/manual/site/index.html
  scripts/manual.py --build DIR        below another build folder
  scripts/manual.py --python PYTHON    besides, site/python_reference/: the reference of Python's public names, from the
                                       fp16lab that this Python imports (build/python-venv/bin/python after ./test.sh)

README.md, README.zh.md, docs/ and reports/findings/ are the manual, with every file that a page links to. mkdocs and its
theme come from PyPI in the versions of docs/requirements.txt, into a virtual environment below the build folder. Exit code
77, and the reason, where they cannot be had; 1 where a link or an anchor leads nowhere.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)")
SKIPPED = 77
PDOC = "pdoc==16.0.0"


def prose(text: str) -> str:
    """A page without its code, in which brackets and parentheses are no links."""
    without_blocks = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", "", without_blocks)


def links(page: Path) -> list[Path]:
    """The files of this checkout that a page links to, existing or not."""
    targets = (match.group(1).split("#")[0] for match in LINK.finditer(prose(page.read_text())))
    return [Path(os.path.normpath(page.parent / t)) for t in targets if t and "://" not in t and not t.startswith("mailto:")]


def files_of_the_manual() -> set[Path]:
    """The manual's own files, and all that they link to, and what these link to."""
    own = [ROOT / "README.md", ROOT / "README.zh.md", *(ROOT / "docs").rglob("*"), *(ROOT / "reports/findings").rglob("*.md")]
    waiting = [path for path in own if path.is_file()]
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        if path.suffix == ".md":
            waiting += [target for target in links(path) if target.is_file()]
    return found


def unlisted_findings() -> list[str]:
    """Findings to which docs/findings.md has no link."""
    listed = links(ROOT / "docs/findings.md")
    return [str(page.relative_to(ROOT)) for page in sorted((ROOT / "reports/findings").glob("*/README.md")) if page not in listed]


def keep_words(site: Path) -> None:
    """Marks the words of code that have a hyphen: a browser would end a line after "--"."""
    mark = lambda text: re.sub(r"(?:^|(?<=>))[^<>]+", lambda words: re.sub(r"\S*-\S*", r'<span class="word">\g<0></span>', words.group()), text.group())
    for page in site.rglob("*.html"):
        page.write_text(re.sub(r"<(pre|code)\b.*?</\1>", mark, page.read_text(), flags=re.S))


def mkdocs(build: Path) -> Path:
    """The program, installed if it is missing."""
    environment = build / "manual-venv"
    program, wanted = environment / "bin/mkdocs", (ROOT / "docs/requirements.txt").read_text()
    installed = environment / "requirements.txt"
    if program.exists() and installed.exists() and installed.read_text() == wanted:
        return program
    made = subprocess.run([sys.executable, "-m", "venv", environment], capture_output=True, text=True)
    if made.returncode:
        print("Skipped: the manual: python3 has no venv (Debian: python3-venv)")
        sys.exit(SKIPPED)
    pip = [environment / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", ROOT / "docs/requirements.txt"]
    result = subprocess.run(pip, capture_output=True, text=True)
    if result.returncode:
        print("Skipped: the manual: PyPI does not give docs/requirements.txt:", *result.stderr.strip().splitlines()[-1:])
        sys.exit(SKIPPED)
    installed.write_text(wanted)
    return program


def python_reference(python: Path, build: Path, site: Path) -> int:
    """By pdoc, from docstrings; with PyTorch's part where that Python has torch."""
    tools = build / "manual/pdoc"
    if not tools.exists():
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--target", tools, PDOC], check=True)
    modules = ["fp16lab", "!fp16lab._core", "!fp16lab.torch"]
    if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0:
        modules.pop()
    command = [python, "-m", "pdoc", "--no-show-source", "--docformat", "restructuredtext", "-o", site / "python_reference", *modules]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": str(tools)}, cwd=build).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="build folder (default: build)")
    parser.add_argument("--python", type=Path, help="a Python with fp16lab: its names get a reference")
    options = parser.parse_args()
    build = options.build.resolve()
    program = mkdocs(build)

    unlisted = unlisted_findings()
    for page in unlisted:
        print(f"docs/findings.md has no link to {page}", file=sys.stderr)

    source, site = build / "manual/source", build / "manual/site"
    shutil.rmtree(source, ignore_errors=True)
    for path in files_of_the_manual():
        copy = source / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    environment = {**os.environ, "FP16LAB_MANUAL_SOURCE": str(source), "FP16LAB_MANUAL_SITE": str(site), "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run([program, "build", "--strict", "-f", ROOT / "docs/mkdocs.yml"], env=environment)
    keep_words(site)
    if built.returncode == 0 and not unlisted and (
            options.python is None or python_reference(options.python.absolute(), build, site) == 0):
        print(site / "index.html")
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
