#!/usr/bin/env python3
"""What nvcc and its assembler made of the CUDA back end, read in the library: every kernel of every
architecture, PTX and SASS. Nothing runs, and nothing of the library is compiled.

  device_code_test.py --nvcc NVCC --tools FOLDER [--probe OBJECT] [--table] LIBRARY...
  device_code_test.py --nvcc NVCC --tools FOLDER --planted KERNELS.cu     are planted faults found?

The disassemblers are the toolkit's, or come from PyPI into FOLDER; where neither is to be had it says
SKIPPED. A library may have PTX of fewer architectures than SASS (80-real, 90): the nearest judges the others,
too, since only CUB and what sm_75 lacks depend on it. device_code_rules.py has the rules."""
import argparse
import re
import sys
import tempfile
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from device_code import find_tools, output, own_name, read_library, read_sass
from device_code_rules import family, judge, read_plan

SOURCES = Path(__file__).resolve().parents[4] / "engine" / "backend" / "cuda"


def read_sources(path):
    """{path: text} of the kernels and of who launches them; not of the machines that execute them."""
    rooms = ("library", "product", "runtime", "verbs")
    files = [file for room in rooms for file in sorted((path / room).glob("*.[ch]*"))]
    return {file: file.read_text() for file in files or [path]}


def judge_launches(sources, kernels):
    bounds = defaultdict(list)
    for kernel in kernels:
        bounds[own_name(kernel.name)].append(kernel.ptx.threads)
    texts = read_sources(sources)
    constant = re.compile(r"constexpr [\w:]+ (\w+) = (\d+);")
    for path, text in texts.items():
        known = dict(pair for header, said in texts.items() if header.suffix == ".hpp"
                     for pair in constant.findall(said)) | dict(constant.findall(text))
        for found in re.finditer(r"\.threads = ([^,}]+)", text):
            threads = known.get(found[1], found[1])
            threads = int(threads) if threads.isdigit() else 0
            if 0 < threads <= 256:
                continue
            statement = text[text.rfind(";", 0, found.start()):text.find(";", found.end())]
            if "launch(" not in statement:  # a LaunchShape, and the launch after it
                statement = text[found.end():text.find(";", text.find("launch(", found.end()))]
            launched = re.findall(r"&(\w+)", statement)
            if not any(min(bounds[name], default=0) >= max(threads, 1) for name in launched):
                yield (f"{path.name}: .threads = {found[1]} of {' or '.join(launched) or 'no kernel'}: "
                       "no such launch bounds")


def judge_probe(path, tools, work):
    """The probe of tensor cores asks Hopper's own instruction; its object has no PTX."""
    work.mkdir()
    output(tools["cuobjdump"], "-xelf", "all", path.resolve(), cwd=work)
    kernels = {}
    for file in work.glob("*.sm_90a.cubin"):
        kernels |= read_sass(output(tools["nvdisasm"], "-c", file), 90)
    if not kernels:
        yield f"{path.name}: no kernels for sm_90a"
    for name, kernel in kernels.items():
        if not any(re.match(r"[HQ]GMMA\.64x8x", opcode) for opcode in kernel.own):
            yield f"sm_90a {own_name(name)}: no HGMMA or QGMMA: the probe does not ask wgmma\n    {name}"


def altered(kernel):
    """What no compiler makes of a kernel without faults, and what to hear of it."""
    def more(**instructions):
        return {"own": kernel.own + Counter({name.replace("_", "."): 1 for name in instructions})}
    return [
        (dict(registers=256), "255 are all"), (dict(shared=4096), "4096 bytes of static shared memory"),
        (dict(ptx=replace(kernel.ptx, threads=1024, blocks=8)), "of 65536"), (dict(local=8), "8 local"),
        (dict(ptx=replace(kernel.ptx, threads=1024, blocks=3)), "on a multiprocessor of 2048"),
        (more(STL=1), "1 accesses"), (more(FFMA=1), "FFMA; divisions and roots explain"),
        (more(DFMA=1), "DFMA; divisions and roots explain"), (more(MUFU_RSQ64H=1), "and no sqrt.rn.f64"),
        (more(FADD_FTZ=1), "and no rcp.rn.f32"), (more(HMMA_16816_F32=1), "HMMA.16816.F32: not a product"),
        (more(LDG_E_CONSTANT=1), "LDG.CONSTANT, and no ld.global.nc"), (more(RED_E_ADD_F32=1), "in no order"),
        (dict(functions={"__cuda_new"}), "the function __cuda_new"), (dict(architecture=74), "LIMITS lack"),
        (dict(name="_ZN7fp16lab13update_weightINS_7RmspropEEEv", ptx=replace(kernel.ptx, operations=Counter())), "no div.rn.f32"),
        (dict(name="14multiply_tilesI7FmaTileILi64ELi64ELi4EEE"), "PTX: no fma.rn.f32: operands"),
        (dict(name="14multiply_tilesI7FmaTileILi64ELi64ELi4EEE", own=Counter(),
              ptx=replace(kernel.ptx, operations=Counter({"fma.rn.f32": 1}))), "no FFMA, and an fma"),
    ]


def judge_planted(source, nvcc, tools, work):
    """Compiles kernels with faults, asks for the complaints their file announces, and prints what it missed."""
    house = "-fmad=false -ftz=false -prec-div=true -prec-sqrt=true"  # scripts/targets.cmake
    builds = {"house": house + " -arch=sm_90", "sm_75": house + " -arch=sm_75",
              "probe": house + " -gencode=arch=compute_90a,code=sm_90a"}
    text = source.read_text()
    plan, announced = read_plan(text), defaultdict(list)
    line = re.compile(r"^//= (.*?) \| (.*?) \|(?: (.*))?$", re.M)
    for flags, kernel, complaint in line.findall(text):
        announced[flags].append((kernel, complaint))

    def build(flags):
        binary = work / f"planted{list(announced).index(flags)}.fatbin"
        options = builds.get(flags, flags + " -arch=sm_90").split()
        output(nvcc, "-std=c++20", *options, "-fatbin", "-o", binary, source)
        return binary
    with ThreadPoolExecutor(2) as pool:
        binaries = list(pool.map(build, announced))
    for (flags, expected), binary in zip(announced.items(), binaries):
        if flags == "probe":
            kernels, said = [], list(judge_probe(binary, tools, binary.with_suffix("")))
        else:
            kernels, said = read_library(binary, tools, binary.with_suffix(""))
            said += [*judge(kernels, plan), *judge_launches(source, kernels)]
        for kernel, complaint in expected:
            name = binary.name if kernel == "library" else kernel
            heard = [line for line in said if re.match(rf"(sm_\w+ )?{re.escape(name)}: ", line)]
            if not any(complaint in line for line in heard) if complaint else heard:
                yield f"planted {kernel}, {flags}: expected '{complaint or 'no complaint'}', heard {heard}"
        if flags == "house":
            innocent = next(kernel for kernel in kernels if own_name(kernel.name) == "innocent")
            for change, complaint in altered(innocent):
                heard = list(judge([replace(innocent, **change)], plan))
                if not any(complaint in line for line in heard):
                    yield f"planted {change}: expected '{complaint}', heard {heard}"
            if not any("there is no smaller" in line for line in judge(kernels, replace(plan, slice=4096))):
                yield "planted slices of 4096 bytes: expected a complaint that the smallest tile does not fit"
    if not announced:
        yield f"{source.name} announces no complaints"


def table(kernels):
    """A line for each family and architecture: kernels, registers, bytes of static shared memory."""
    rows = defaultdict(list)
    for kernel in kernels:
        rows[family(kernel), kernel.architecture].append(kernel)
    for (name, architecture), group in sorted(rows.items()):
        registers, shared = [kernel.registers for kernel in group], [kernel.shared for kernel in group]
        print(f"{name} | sm_{architecture} | {len(group)} | {min(registers)}-{max(registers)} | "
              f"{min(shared)}-{max(shared)}")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--nvcc", required=True)
    for option in ("--tools", "--probe", "--planted"):
        arguments.add_argument(option, type=Path, required=option == "--tools")
    arguments.add_argument("--table", action="store_true")
    arguments.add_argument("libraries", nargs="*", type=Path)
    given = arguments.parse_args()
    tools = find_tools(given.nvcc, given.tools)
    kernels, complaints = [], []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for number, path in enumerate(given.libraries):
            found, apart = read_library(path, tools, work / str(number))
            kernels += found
            complaints += apart
        if given.probe:
            complaints += judge_probe(given.probe, tools, work / "probe")
        if given.planted:
            complaints += judge_planted(given.planted, given.nvcc, tools, work)
    if kernels:
        complaints += judge(kernels, read_plan("".join(read_sources(SOURCES).values())))
        complaints += judge_launches(SOURCES, kernels)
    if given.table:
        table(kernels)
    for complaint in complaints[:40]:
        print(complaint)
    architectures = ", ".join(f"sm_{number}" for number in sorted({one.architecture for one in kernels}))
    about = f", {len(kernels)} kernels of {architectures}" if given.libraries else ""
    print(f"{len(complaints)} complaints{about}")
    sys.exit(1 if complaints or (given.libraries and not kernels) else 0)


if __name__ == "__main__":
    main()
