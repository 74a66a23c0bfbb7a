#!/usr/bin/env python3
"""Mutates the device code of the CUDA back end and asks the tests on the PTX machine whether they notice.

Each mutation changes one place. A source that has it is compiled to PTX, and short tests run on that. The
result is `killed` (by which test, with what it said), `survived`, `same code` (nothing can notice), or `does
not compile`. Results are kept after each mutation, and a later run goes on from there.

  mutations.py --build build [--run]    lists the mutations with their ids, or executes those without a result
"""
import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace as Mutation

ROOT = Path(__file__).resolve().parents[4]
CUDA = Path("engine/backend/cuda")

# The sources that are compiled, each with the verbs whose cases run first. A header is judged in the first
# that includes it and whose PTX it changes.
UNITS = {
    "product/gemm.cu": "gemm", "product/convolution.cu": "conv2d,conv2d_input_gradient",
    "product/convolution_weight.cu": "conv2d_weight_gradient",
    "verbs/cast.cu": "cast,cast_stochastic,histogram", "verbs/reduce.cu": "reduce",
    "verbs/indexing.cu": "pick,place,gather_rows,scatter_rows",
    "verbs/step.cu": "unscale,global_norm,clip_by_norm,clip_by_value,digest",
    "verbs/elementwise.cu": "unary,binary,scale,divide", "verbs/histogram.cu": "histogram,count_update",
    "verbs/lstm.cu": "lstm_cell,lstm_cell_gradient", "verbs/memory.cu": "fill,copy,digest",
    "verbs/update.cu": ",".join(re.findall(
        r'"(\w+_step)"', (ROOT / "engine/backend/update_rules.hpp").read_text())),
    "verbs/permute.cu": "permute,slice,insert",
    "verbs/pooling.cu": "max_pool2d,pool_pick,pool_place,average_pool2d,average_pool2d_transposed",
    "verbs/random.cu": "fill_uniform,fill_normal,fill_bernoulli",
}


def swapped(match):
    other = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "+": "-", "-": "+", "down": "xor",
             "xor": "down", "Max": "Min", "Min": "Max", "Add": "Max"}
    return other[match[1]].join(match[0].rsplit(match[1], 1))


# (kind, pattern in device code, its replacement); a rule mutates a place once.
RULES = (
    ("barrier", r"__sync(threads|warp)\([^()]*\);", ";"),
    ("copy-wait", r"(wait_for_copies<[^>]*>|commit_copies)\(\);", ";"),
    ("loop-bound", r"for \([^;{}]*;[^;{}]*? (<|>|>=) ", swapped),
    ("loop-step", r"(for \([^;{}]*;[^;{}]*;[^;{}]*?\+= )(?=\w)", r"\1 1 + "),
    ("guard", r"(?<=[\w)\]] )(<|<=|==)(?= [\w(])", swapped),
    ("dropped-guard", r" && [\w. +*/%<>=!-]+(?=[);?:]| &&)", ""),
    ("dropped-guard", r"(?<=\()[\w. +*/%<>=!-]+ && ", ""),
    ("sign", r"(?<=[\w)\]]) (\+|-) (?=[\w(])", swapped),
    ("stride", r" \* (\w*(?:stride|pitch|extent|columns|width|inner|outer|bytes|per_row|size)\w*)\b(?![(.<])",
     r" * (\1 + 1)"),
    ("stride", r"\b(\w+) \* ([\w.]+) \+ (\w+)\b(?![.(\[])", r"\3 * \2 + \1"),
    ("index", r"\[(\w+)\]\[(\w+)\]", r"[\2][\1]"),
    ("index", r"(?<=[\w)])\[(\w+)\](?!\[)", r"[\1 ^ 1]"),
    ("lane", r"\bthreadIdx\.x (%|/) 32", r"threadIdx.x \1 16"),
    ("lane", r"(lane|threadIdx\.x) == 0\b", r"\1 == 1"),
    ("lane", r"0xffffffffu", "0x7fffffffu"),
    ("exchange", r"(?:__shfl_(?=\w+_sync)|\batomic(?=\w+\())(down|xor|Max|Min|Add)", swapped),
    ("rounding", r"\bcanonicalize\(", "("),
    ("rounding", r"\.rn\.(f16|bf16)\.f32", r".rz.\1.f32"),
    ("rounding", r"\bstored<(\w+)>\((?=\w)", r"stored<\1>(1.0009765625f * "),
    ("constant", r"(?<=[?:=] )0\.0f", "1.0f"),
    ("constant", r"(?<== )0(?=[,;])", "1"),
)


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def device_code(text):
    """The bodies of device functions, in their places; all else, comments and directives are blank."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match if isinstance(match, str) else match[0])
    code = re.sub(r"//[^\n]*|/\*.*?\*/|static_assert\([^;]*;", blank, text, flags=re.S)
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, code, flags=re.M)
    kept = ""
    for mark in re.finditer(r"__(?:device|global)__[^;{]*\{", code):
        if mark.start() < len(kept):
            continue
        opening = end = mark.end()
        while code.count("{", opening, end) >= code.count("}", opening, end):
            end += 1
        kept += blank(code[len(kept):opening]) + code[opening:end]
    return kept


def mutations_of(file, text):
    """All mutations of one source. An id is the same until its line changes."""
    code, taken, seen = device_code(text), set(), Counter()
    for rule, (kind, pattern, to) in enumerate(RULES):
        for match in re.finditer(pattern, code):
            after = match.expand(to) if isinstance(to, str) else to(match)
            # The first character that changes is the place: rules of one kind must not mutate it twice.
            same = len(os.path.commonprefix([match[0], after]))
            at = match.start() + same
            mutated = text[:match.start()] + after + text[match.end():]
            if (at, mutated[at:at + 8]) in taken:
                continue
            taken.add((at, mutated[at:at + 8]))
            begin, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
            line = " ".join(text[begin:end].split())
            # The count distinguishes equal lines, the column the places in a line.
            key = f"{line}|{len(text[begin:at].lstrip())}|{after[same:]}"
            seen[key] += 1
            changed = " ".join(mutated[begin:end + len(mutated) - len(text)].split())
            yield Mutation(
                id=f"{file}:{kind}:{digest(f'{key}|{seen[key]}')[:8]}", file=file, rule=rule, text=mutated,
                change=f"line {text.count(chr(10), 0, at) + 1}\n  - {line}\n  + {changed}")


def selection(count):
    """`count` mutations, one from each file and kind before any gives a second; by digest within each."""
    strata = defaultdict(list)
    found = [one for path in sorted((ROOT / CUDA).glob("[prv]*/*.[ch]*"))  # product, runtime, verbs
             for one in mutations_of(str(path.relative_to(ROOT / CUDA)), path.read_text())]
    for one in found:
        strata[one.id[:-8]].append(one)
    idle = set(range(len(RULES))) - {one.rule for one in found}
    if idle or len({one.id for one in found}) < len(found):
        sys.exit(f"mutations.py: an id is there twice, or rules find no place: {[RULES[i] for i in idle]}")
    for members in strata.values():
        for rank, one in enumerate(sorted(members, key=lambda one: one.id[-8:])):
            one.rank = rank
    return sorted(found, key=lambda one: (one.rank, one.id[-8:]))[:count]


class Build:
    """A configured and built folder, which is only read: its commands, with other inputs and outputs."""
    def __init__(self, folder):
        self.folder, self.texts = folder.resolve(), folder.resolve() / "engine/CMakeFiles/fp16lab_ptx_of_mutations.dir"

    def ninja(self, tool, unit):
        target = (self.texts / "backend/cuda" / unit).with_suffix(".ptx").relative_to(self.folder)
        return subprocess.check_output(["ninja", "-t", tool, target], cwd=self.folder, text=True)

    def compile(self, unit, overlay, output):
        """Does the unit compile with the files in `overlay` in place of the sources?"""
        line = self.ninja("commands", unit).splitlines()[-1]
        words = shlex.split(re.sub(r"\bccache | -Werror| -MD| -MT \S+| -MF \S+| -o \S+", "", line))
        if (overlay / CUDA / unit).exists():
            words[words.index(f"{ROOT / CUDA / unit}")] = str(overlay / CUDA / unit)
        words[2:2] = [f"-I{overlay}", "-o", str(output)]
        return subprocess.run(["nice", *words], cwd=self.folder, capture_output=True).returncode == 0


def run_test(program, environment, *arguments):
    """By what the test program was killed, or nothing if it passes."""
    try:
        done = subprocess.run(["nice", str(program), "--gtest_fail_fast", *arguments], capture_output=True,
                              text=True, env={**os.environ, **environment}, timeout=600, errors="replace")
    except subprocess.TimeoutExpired:
        return f"{program.name}: no end within 600 s"
    if done.returncode == 0 and "[  PASSED  ]" in done.stdout and "[  SKIPPED ]" not in done.stdout:
        return ""
    # The first test that fails ends the program. What the machine refuses says more than a comparison.
    name, _, said = (done.stdout + done.stderr).rpartition("[ RUN      ] ")[2].partition("\n")
    refused = re.findall(r"fp16lab, the PTX machine: (.*)", done.stderr)
    if refused and "C++ exception" in said:
        return f"{name}: fault: {refused[-1][:800]}"
    return f"{name}: exit status {done.returncode}: {' '.join(said.partition('[  FAILED')[0].split())[:240]}"


def judge(build, unit, file="", text=""):
    """(verdict, by what) of the unit with that text of a file that it includes, or with nothing changed."""
    with tempfile.TemporaryDirectory() as folder:
        overlay, texts = Path(folder, "overlay"), Path(folder, "texts")
        if file:
            (overlay / CUDA / file).parent.mkdir(parents=True)
            (overlay / CUDA / file).write_text(text)
        place = Path("backend/cuda", unit).with_suffix(".ptx")
        shutil.copytree(build.texts, texts, copy_function=os.symlink)
        (texts / place).unlink()
        if not build.compile(unit, overlay, texts / place):
            return "does not compile", ""
        if file and (texts / place).read_bytes() == (build.texts / place).read_bytes():
            return "same code", ""
        settings = {"FP16LAB_CUDA_PLUGIN": f"{build.folder}/lib/libfp16lab_cuda.so", "FP16LAB_PTX_GRID": "3",
                    "FP16LAB_PTX": str(texts), "FP16LAB_PTX_ARCH": "90", "FP16LAB_VERBS": UNITS[unit]}
        preloaded = {**settings, "LD_PRELOAD": f"{build.folder}/lib/libfp16lab_ptx_cudart.so"}
        conformance = build.folder / "tests/backend_conformance"
        by = (run_test(conformance, preloaded, "--gtest_filter=*VerbCasesGive*/cuda") or
              run_test(conformance, preloaded, "--gtest_filter=*/cuda:-*VerbCases*") or
              run_test(build.folder / "tests/cuda_device_backend", preloaded) or
              (run_test(build.folder / "tests/cuda_product_order", settings, "--gtest_filter=*.OfEveryKernel")
               if unit.startswith("product/") else ""))
        return "killed" if by else "survived", by


def run(build, chosen, path, until):
    results = json.loads(path.read_text()) if path.exists() else {}
    if (verdict := judge(build, "verbs/memory.cu"))[0] != "survived":
        sys.exit(f"mutations.py: what is not mutated does not pass: {verdict[1]}")
    for number, one in enumerate(chosen, 1):
        began = time.time()
        if results.get(one.id, {}).get("source") == digest(one.text) or began > until:
            continue
        for unit in UNITS:
            if f"{ROOT / CUDA / one.file}\n" in build.ninja("deps", unit):
                if (verdict := judge(build, unit, one.file, one.text))[0] != "same code":
                    break
        results[one.id] = dict(zip(("verdict", "by"), verdict), source=digest(one.text), change=one.change)
        path.with_suffix(".new").write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        path.with_suffix(".new").replace(path)
        print(f"{number} ({time.time() - began:.0f} s) {one.id} {verdict[0]} {verdict[1][:90]}", flush=True)
    return results


def print_table(results):
    groups = defaultdict(Counter)
    for id, one in results.items():
        for group in ("all", *id.split(":")[:2]):
            groups[group][one["verdict"]] += 1
    for group, counts in sorted(groups.items()):
        print(f"{group:36s} {counts['killed']:3d} killed, {counts['survived']:3d} survived")
    for id, one in sorted(results.items()):
        if one["verdict"] == "survived":
            print("survived:", id, one["change"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="with tests and PTX of 90; only read")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--results", type=Path, default="mutations.json")
    parser.add_argument("--count", type=int, default=200, help="how many mutations are chosen")
    parser.add_argument("--only", default="", help="a regular expression that ids must match")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin none later than that")
    options = parser.parse_args()
    build, end = Build(options.build), time.time() + 60 * options.minutes
    chosen = [one for one in selection(options.count) if re.search(options.only, one.id)]
    if options.run:
        return print_table(run(build, chosen, options.results, end))
    for one in chosen:
        print(one.id, one.change)


if __name__ == "__main__":
    main()
