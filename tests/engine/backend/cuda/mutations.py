#!/usr/bin/env python3
"""Mutates the device code of the CUDA back end and asks the tests on the PTX machine whether they notice.

Each mutation changes one place. The source it belongs to is compiled to PTX, and short tests run on it.
The result is `killed` (by which test, with what it said), `survived`, `same code` (the compiler's text
did not change: nothing can notice), or `does not compile`. Results are kept after each mutation, and a
later run goes on from there.

  mutations.py --list                      the mutations, with their ids
  mutations.py --build build --run         executes those that have no result
  mutations.py --table                     what the results say
  mutations.py --build build --check       whether the script is in order
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
from dataclasses import dataclass
from pathlib import Path

from mutation_rules import CUDA, RULES, mutations_of, selection, sources

ROOT = Path(__file__).resolve().parents[4]
TEST_LIMIT = 600  # seconds: a loop that does not end is noticed by that

GEMM = ("product/gemm.cu", "gemm")
CONVOLUTION = ("product/convolution.cu", "conv2d,conv2d_input_gradient")
REDUCE = ("verbs/reduce.cu", "reduce")
INDEXING = ("verbs/indexing.cu", "pick,place,gather_rows,scatter_rows")
STEP = ("verbs/step.cu", "unscale,global_norm,clip_by_norm,clip_by_value")
WEIGHT = ("product/convolution_weight.cu", "conv2d_weight_gradient")
# For files that begin so: the units that have their code, each with the verbs whose cases run. The first
# unit whose PTX a mutation changes is judged.
UNITS = {
    "product/convolution_weight.cu": [WEIGHT],
    "product/convolution": [CONVOLUTION, WEIGHT],
    "product/": [GEMM, CONVOLUTION, WEIGHT],
    "verbs/adam.cu": [("verbs/adam.cu", "adam_step,lamb_step")],
    "verbs/cast.cu": [("verbs/cast.cu", "cast,cast_stochastic")],
    "verbs/elementwise.cu": [("verbs/elementwise.cu", "unary,binary,scale,divide")],
    "verbs/gradient_table.hpp": [("verbs/step.cu", "unscale,global_norm,clip_by_norm,clip_by_value,digest")],
    "verbs/histogram.cu": [("verbs/histogram.cu", "histogram,count_update")],
    "verbs/probe_counting.hpp": [("verbs/cast.cu", "cast,histogram")],
    "verbs/indexing.cu": [INDEXING],
    "verbs/lstm.cu": [("verbs/lstm.cu", "lstm_cell,lstm_cell_gradient")],
    "verbs/memory.cu": [("verbs/memory.cu", "fill,copy,digest")],
    "verbs/optimizers.cu": [("verbs/optimizers.cu", "sgd_step,rmsprop_step")],
    "verbs/updates.hpp": [("verbs/adam.cu", "adam_step")],
    "verbs/permute.cu": [("verbs/permute.cu", "permute,slice,insert")],
    "verbs/pooling.cu": [("verbs/pooling.cu", "max_pool2d,pool_pick,pool_place,average_pool2d,"
                                             "average_pool2d_transposed")],
    "verbs/random.cu": [("verbs/random.cu", "fill_uniform,fill_normal,fill_bernoulli")],
    "verbs/reduce.cu": [("verbs/reduce.cu", "reduce")],
    "verbs/tree_kernels.hpp": [REDUCE, INDEXING, STEP],
    "verbs/step.cu": [STEP],
    "verbs/stochastic.hpp": [("verbs/cast.cu", "cast_stochastic")],
    "runtime/instructions.hpp": [GEMM, ("verbs/cast.cu", "cast,cast_stochastic")],
    "runtime/fast_division.hpp": [("verbs/permute.cu", "permute,slice,insert")],
    "runtime/index_fault.hpp": [INDEXING],
    "runtime/packs.hpp": [("verbs/cast.cu", "cast")],
}


def units_of(file):
    """[(unit, verbs)] of the longest entry that the name begins with."""
    return UNITS[max((name for name in UNITS if file.startswith(name)), key=len)]


@dataclass
class Trial:
    """A run of a test program that must pass."""
    name: str
    program: Path
    arguments: tuple
    environment: dict


class Build:
    """A configured and built folder, which is only read: its commands, with other inputs and outputs."""

    def __init__(self, folder, work):
        self.folder, self.work = folder.resolve(), work
        cache = (self.folder / "CMakeCache.txt").read_text()
        self.root = Path(re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", cache, re.M)[1])
        self.texts = self.folder / "engine/CMakeFiles/fp16lab_ptx_90.dir"
        self.known = {}

    def commands(self, target):
        if target not in self.known:
            done = subprocess.run(["ninja", "-t", "commands", target], cwd=self.folder, capture_output=True,
                                  text=True, check=True)
            self.known[target] = done.stdout.splitlines()
        return self.known[target]

    def call(self, arguments):
        return subprocess.run(["nice", "-n", "10", *arguments], cwd=self.folder, capture_output=True,
                              text=True)

    def compile(self, target, unit, overlay, output):
        """The unit by the command behind `target`, with the files in `overlay` in place of the sources."""
        source = self.root / CUDA / unit
        line = next(line for line in self.commands(target)
                    if re.search(re.escape(str(source)) + r"(\s|$)", line))
        words = [word for word in shlex.split(line) if word not in ("ccache", "-Werror", "-MD")]
        for flag in ("-MT", "-MF"):
            at = words.index(flag)
            del words[at:at + 2]
        words[words.index("-o") + 1] = str(output)
        mutated = overlay / CUDA / unit
        words[words.index(str(source))] = str(mutated if mutated.exists() else source)
        first = next(i for i, word in enumerate(words) if word.startswith("-I"))
        words.insert(first, f"-I{overlay}")
        return self.call(words)


def run_trial(trial):
    """None if it passes; else by what it was killed."""
    environment = {**os.environ, **trial.environment}
    try:
        done = subprocess.run(["nice", "-n", "10", str(trial.program), "--gtest_fail_fast", *trial.arguments],
                              capture_output=True, text=True, env=environment, timeout=TEST_LIMIT,
                              errors="replace")
    except subprocess.TimeoutExpired:
        return f"{trial.name}: no end within {TEST_LIMIT} s"
    output = done.stdout + done.stderr
    if done.returncode == 0 and "[  PASSED  ]" in output and "[  SKIPPED ]" not in output:
        return None
    # Behind the first test that fails the others are said to be skipped; where a signal ends all, none is.
    failed = re.search(r"\[  FAILED  \] (\S+?),? ", output)
    name = failed[1] if failed else (re.findall(r"\[ RUN      \] (\S+)", output) or [trial.name])[-1]
    said = output.rpartition(f"[ RUN      ] {name}\n")[2].partition("[  FAILED  ]")[0].splitlines()
    said = [line for line in said if line.strip()] or [f"exit status {done.returncode}"]
    # What a machine refuses says more than the comparison that fails behind it. The PTX machine says it
    # apart, and did so before for tests that provoke it.
    refused = re.findall(r"fp16lab, the PTX machine: (.*)", done.stderr)
    if refused and "C++ exception" in " ".join(said):
        return f"{name}: fault: {refused[-1][:800]}"
    fault = re.compile(r"C\+\+ exception|[Rr]ace|misaligned|barrier|outside|poison|terminate")
    line = next((line for line in said if fault.search(line)), " ".join(said))
    if done.returncode < 0:
        line = f"signal {-done.returncode}: {line}"
    return f"{name}: {' '.join(line.split())[:240]}"


def prepare(build, unit, overlay, work, verbs):
    """(the trials, or the verdict that makes them unnecessary)."""
    kept = build.texts / "backend/cuda" / Path(unit).with_suffix(".ptx")
    text = work / "unit.ptx"
    if build.compile("fp16lab_ptx_90", unit, overlay, text).returncode != 0:
        return [], "does not compile"
    if any(overlay.rglob("*.*")) and text.read_bytes() == kept.read_bytes():
        return [], "same code"
    texts = work / "texts"
    shutil.copytree(build.texts, texts, copy_function=os.symlink, dirs_exist_ok=True)
    place = texts / kept.relative_to(build.texts)
    place.unlink()
    shutil.move(text, place)
    settings = {"FP16LAB_CUDA_PLUGIN": str(build.folder / "lib/libfp16lab_cuda.so"),
                "FP16LAB_PTX": str(texts), "FP16LAB_PTX_ARCH": "90"}
    preloaded = {**settings, "LD_PRELOAD": str(build.folder / "lib/libfp16lab_ptx_cudart.so"),
                 "FP16LAB_PTX_GRID": "3"}
    conformance = build.folder / "tests/backend_conformance"
    trials = [Trial("conformance", conformance, ("--gtest_filter=*/cuda:-*VerbCases*",), preloaded),
              Trial("device back end", build.folder / "tests/cuda_device_backend", (), preloaded)]
    if verbs:
        trials.insert(0, Trial("verb cases", conformance, ("--gtest_filter=*VerbCasesGive*/cuda",),
                               {**preloaded, "FP16LAB_VERBS": verbs}))
    if unit.startswith("product/"):
        trials.append(Trial("product order", build.folder / "tests/cuda_product_order",
                            ("--gtest_filter=*.OfEveryKernel",), settings))
    return trials, None


def judge(build, unit, overlay, verbs):
    """Verdict, by what, and seconds of the unit with the overlay's files."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(dir=build.work) as folder:
        trials, verdict = prepare(build, unit, overlay, Path(folder), verbs)
        by = next(filter(None, map(run_trial, trials)), "")
        verdict = verdict or ("killed" if by else "survived")
        return {"verdict": verdict, "by": by, "seconds": round(time.monotonic() - begin, 1)}


def judge_mutation(build, mutation):
    with tempfile.TemporaryDirectory(dir=build.work) as folder:
        place = Path(folder) / CUDA / mutation.file
        place.parent.mkdir(parents=True)
        place.write_text(mutation.text)
        for unit, verbs in units_of(mutation.file):
            found = judge(build, unit, Path(folder), verbs)
            if found["verdict"] != "same code":
                break
        return {"unit": unit, **found}


def digest(mutation):
    return hashlib.sha256(mutation.text.encode()).hexdigest()[:16]


def read_results(path):
    return json.loads(path.read_text()) if path.exists() else {}


def write_results(path, results):
    other = path.with_name(path.name + ".new")
    other.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    os.replace(other, path)


def run(build, chosen, path, until):
    results = read_results(path)
    for number, mutation in enumerate(chosen, 1):
        if results.get(mutation.id, {}).get("source") == digest(mutation):
            continue
        if until and time.time() > until:
            return print(f"the time is over; {number - 1} of {len(chosen)} have been visited")
        found = judge_mutation(build, mutation)
        results[mutation.id] = {"source": digest(mutation), **found}
        for name in ("file", "kind", "line", "before", "after"):
            results[mutation.id][name] = getattr(mutation, name)
        write_results(path, results)
        print(f"{number}/{len(chosen)} {mutation.id} {found['verdict']} ({found['seconds']} s)", flush=True)


def rate(counts):
    """"killed of those that could be": what the compiler left unchanged or refused cannot be noticed."""
    alive = counts["killed"] + counts["survived"]
    share = f" {100 * counts['killed'] / alive:5.1f} %" if alive else ""
    return f"{counts['killed']:3d} of {alive:3d}{share}"


def print_table(results):
    groups = defaultdict(Counter)
    for one in results.values():
        for group in (("all", ""), ("kind", one["kind"]), ("file", one["file"])):
            groups[group][one["verdict"]] += 1
    print(f"{len(results)} mutations; killed of those that compiled to other code")
    for group in sorted(groups):
        print(f"{' '.join(group):30s}", rate(groups[group]))
    others = groups["all", ""]
    print(f"{others['same code']} gave the same code, {others['does not compile']} did not compile")
    killed = [one["by"] for one in results.values() if one["verdict"] == "killed"]
    faults = sum(": fault: " in by or "C++ exception" in by or ": signal " in by for by in killed)
    print(f"  killed by a refusal of the machine: {faults}, by other results: {len(killed) - faults}")
    tests = Counter(by.split("/cuda")[0].split(":")[0] for by in killed)
    print("  in", ", ".join(f"{test} {count}" for test, count in tests.most_common(12)))
    for id, one in sorted(results.items()):
        if one["verdict"] == "survived":
            print(f"survived: {id} line {one['line']}\n  - {one['before']}\n  + {one['after']}")


def check(build, count):
    """Every rule finds a place, ids are unique and stay when lines move, and what is not mutated passes."""
    everything, faults = [], []
    for file, text in sources(ROOT):
        found = mutations_of(file, text)
        everything += found
        moved = mutations_of(file, "// One line more.\n\n" + text)
        if [one.id for one in moved] != [one.id for one in found]:
            faults.append(f"{file}: ids change when lines move")
        if any(one.text == text for one in found):
            faults.append(f"{file}: a mutation changes nothing")
    ids = Counter(one.id for one in everything)
    faults += [f"{id} is there {times} times" for id, times in ids.items() if times > 1]
    used = {one.rule for one in everything}
    faults += [f"the rule {kind} {pattern} finds no place" for rule, (kind, pattern, _) in enumerate(RULES)
               if rule not in used]
    chosen = selection(everything, count)
    if {one.kind for one in chosen} != {rule[0] for rule in RULES}:
        faults.append("a kind has no mutation among the chosen ones")
    print(f"{len(everything)} places in {len({one.file for one in everything})} files, {len(chosen)} chosen")
    for file in sorted({one.file for one in everything}):
        if not any(file.startswith(name) for name in UNITS):
            faults.append(f"{file}: UNITS names no unit for it")
        elif not all((ROOT / CUDA / unit).exists() for unit, *_ in units_of(file)):
            faults.append(f"{file}: a unit that UNITS names is no file")
    if build:
        with tempfile.TemporaryDirectory(dir=build.work) as nothing:
            found = judge(build, "verbs/memory.cu", Path(nothing), "fill,digest")
            print(f"not mutated: {found}")
            if found["verdict"] != "survived":
                faults.append(f"what is not mutated does not pass: {found}")
    print(*faults, sep="\n")
    return 1 if faults else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("list", "run", "table", "check"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--build", type=Path, help="where the tests and PTX of 90 are built; only read")
    parser.add_argument("--results", type=Path, default=Path("mutations.json"))
    parser.add_argument("--count", type=int, default=200, help="how many mutations are chosen")
    parser.add_argument("--only", default="", help="a regular expression that ids must match")
    parser.add_argument("--minutes", type=float, help="begin no mutation later than that")
    options = parser.parse_args()
    if (options.run or options.check) and shutil.which("ninja") is None:
        parser.error("ninja is not on the PATH; it says how a build compiles")
    if options.run and options.build is None:
        parser.error("--run needs --build FOLDER")
    with tempfile.TemporaryDirectory(prefix="mutations") as work:
        build = Build(options.build, Path(work)) if options.build else None
        if options.check:
            return check(build, options.count)
        root = build.root if build else ROOT
        everything = [one for file, text in sources(root) for one in mutations_of(file, text)]
        chosen = [one for one in selection(everything, options.count) if re.search(options.only, one.id)]
        if options.list:
            for one in chosen:
                print(f"{one.id} line {one.line}\n  - {one.before}\n  + {one.after}")
        if options.run:
            run(build, chosen, options.results, options.minutes and time.time() + 60 * options.minutes)
        if options.table:
            print_table(read_results(options.results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
