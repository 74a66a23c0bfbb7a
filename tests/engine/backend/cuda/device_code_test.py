#!/usr/bin/env python3
"""What nvcc and its assembler made of the CUDA back end, read in the library: every kernel of every
architecture, PTX and SASS. Nothing runs, and nothing of the library is compiled.

  device_code_test.py --nvcc NVCC --tools FOLDER [--sources FOLDER] [--probe OBJECT] [--table] LIBRARY...
  device_code_test.py --nvcc NVCC --tools FOLDER --planted KERNELS.cu     are planted faults found?

The disassemblers are the toolkit's, or come from PyPI into FOLDER; where neither is to be had it says
SKIPPED. Where a library has PTX for one architecture only (80-real, 90), that judges the others, too: no
source asks for an architecture, but CUB's, which takes its sizes from it. The rules, for each kernel:

  resources  At most 255 registers. Blocks of .maxntid threads, .minnctapersm of them, fit the 65536 registers
             of a multiprocessor. No local memory (stack, LDL, STL), but for SPILLS. Static shared memory is
             what the PTX declares, and 1 KiB that sm_90 and newer keep for themselves where there is any.
  launches   Who launches more than 256 threads, or a number that is not known here, has launch bounds.
  PTX        Every FP32 and FP64 add, sub, mul, fma, div, sqrt, rcp says .rn, so that no driver contracts; no
             .ftz, .approx, .full; no arithmetic in 16 bits; no atomics of floats; fma in WRITES_FMA only,
             ld.global.nc in CUB only; drivers are told --fmad false.
  mma        A product multiplies in its own format, nothing else multiplies, and SASS has the HMMA of these.
  SASS       A division is an expansion: its fast path stands in the kernel, its slow path is a function with
             a name (SLOW_PATHS). So a kernel's own code has at most the FFMA, DFMA, MUFU and .FTZ that
             EXPANSIONS gives to as many divisions and roots as its FCHK, MUFU.RSQ, ... count; and these only
             if its PTX has the operation. FFMA is free where the PTX has fma.rn.f32, DFMA where it has
             fma.rn.f64. LDG.CONSTANT only where it has ld.global.nc. Every rounding is to nearest."""
import argparse
import re
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

from device_code import find_tools, output, own_name, read_library, read_sass

# Kernels that may spill, up to so many bytes a thread.
SPILLS = [
    # TF32 operands in runs along the outer axis come word by word; their 64 addresses outlast a slice. Costs
    # time, no bits.
    (r"7MmaTileIfLi128ELi128E", 184),
]
# Kernels whose source writes an fma.
WRITES_FMA = [
    r"multiply_tiles.*7FmaTile",  # the FP32 chain of a product
]
SHARED_BESIDE_TILES = 3072  # what shared_limit of product_plan.hpp leaves to static arrays

# A product's tile in its mangled name; its mma in PTX and in SASS.
HALF = r"(7Mma|10Gather)TileINS_10SmallFloatINS_6FormatILi"
PRODUCTS = {
    "FP16": (HALF + "5ELi11E",
             {"m16n8k16.row.col.f32.f16.f16.f32", "m16n8k8.row.col.f32.f16.f16.f32"},
             {"HMMA.16816.F32", "HMMA.1688.F32"}),
    "BF16": (HALF + "8ELi8E",
             {"m16n8k16.row.col.f32.bf16.bf16.f32", "m16n8k8.row.col.f32.bf16.bf16.f32"},
             {"HMMA.16816.F32.BF16", "HMMA.1688.F32.BF16"}),
    "TF32": (r"(7Mma|10Gather)TileIf",
             {"m16n8k8.row.col.f32.tf32.tf32.f32", "m16n8k4.row.col.f32.tf32.tf32.f32"},
             {"HMMA.1688.F32.TF32", "HMMA.1684.F32.TF32"}),
    "FP32": (r"7FmaTile", set(), set()),
}

# What one operation takes at most in a kernel's own code. So ptxas of 12.1, 12.4, 12.9 and 13.0 has it, from
# sm_80 to sm_120; a division by a constant has no MUFU, divisions by the same number share one.
EXPANSIONS = [  # what counts it; what the PTX must have; its instructions
    (r"FCHK", r"div\.rn\.f32", {"FFMA": 5, "MUFU.RCP": 1}),
    (r"FADD\.FTZ", r"rcp\.rn\.f32", {"FFMA": 2, "MUFU.RCP": 1, "FADD.FTZ": 1}),
    (r"MUFU\.RSQ", r"sqrt\.rn\.f32", {"FFMA": 2, "MUFU.RSQ": 1, "FMUL.FTZ": 2}),
    (r"MUFU\.RCP64H", r"(div|rcp)\.rn\.f64", {"DFMA": 7, "MUFU.RCP64H": 1, "FFMA": 1}),
    (r"MUFU\.RSQ64H", r"sqrt\.rn\.f64", {"DFMA": 5, "MUFU.RSQ64H": 1}),
    (r"I2F(\.U32)?\.RP", r"(div|rem)\.[su](16|32)", {"MUFU.RCP": 1, "F2I.FTZ": 1}),
]
SLOW_PATHS = [  # functions that ptxas adds; what the PTX must have
    (r"__cuda_sm3x_div_rn_noftz_f32_slowpath", r"div\.rn\.f32"),
    (r"__cuda_sm20_rcp_rn_f32_slowpath", r"rcp\.rn\.f32"),
    (r"__cuda_sm20_sqrt_rn_f32_slowpath", r"sqrt\.rn\.f32"),
    (r"__cuda_sm20_div_(rn_f64_full|f64_slowpath_v2)", r"div\.rn\.f64"),
    (r"__cuda_sm20_dblrcp_rn_slowpath_v3", r"(rcp|div)\.rn\.f64"),
    (r"__cuda_sm20_dsqrt_rn_f64_mediumpath_v1", r"sqrt\.rn\.f64"),
    (r"__cuda_sm20_(div|rem)_[su](16|64)", r"(div|rem)\.[su](16|64)"),
    (r"__cuda_sm70_shflsync_\w+", r"shfl\.sync"),
    (r"__cuda_sm70_votesync_\w+", r"vote\.sync"),
    (r"__cuda_sm70_warpsync", r"bar\.warp\.sync"),
]

INEXACT = re.compile(r"\.(ftz|approx|full|sat)\b|^(add|sub|mul|fma|div|sqrt|rcp)(?!\.rn\b)[.\w]*\.f(32|64)$"
                     r"|^(mad|ex2|lg2|sin|cos|tanh|rsqrt)\b[.\w]*\.b?f(16|16x2|32|64)$")
IN_HALVES = re.compile(r"^(add|sub|mul|fma|min|max|ex2|tanh)\b.*\.b?f16(x2)?$")
ATOMIC = re.compile(r"^(red|atom)\b.*\.b?f(16|16x2|32|64)$")
# Conversions and constants.
MOVED_HALVES = re.compile(r"HADD2\.F32 \S+, -RZ, |HFMA2(\.MMA|\.BF16_V2)? \S+, -RZ, RZ, ")
ROUNDED_OTHERWISE = re.compile(r"((F|D)(ADD|MUL|FMA)|F2FP?|I2F).*\.R[MPZ]\b")


def plain(pattern):
    return pattern.replace("\\", "")


def operands(kernel):
    return next((kind for kind, (tile, _, _) in PRODUCTS.items() if re.search(tile, kernel.name)), "")


def family(kernel):
    return f"{own_name(kernel.name)} {operands(kernel)}".strip()


def has_room(kernel):
    if kernel.registers > 255:
        yield f"{kernel.registers} registers a thread; 255 are all there are"
    threads, blocks = kernel.ptx.threads or 256, kernel.ptx.blocks
    taken = -(-kernel.registers // 8) * 8 * -(-threads // 32) * 32 * blocks  # a warp takes them by 256
    if taken > 65536:
        yield f"{blocks} blocks of {threads} threads with {kernel.registers} registers take {taken} of 65536"

    touched = sum(count for opcode, count in kernel.own.items() if opcode.startswith(("LDL", "STL")))
    allowed = next((most for name, most in SPILLS if re.search(name, kernel.name)), 0)
    if kernel.local or kernel.stack > allowed or (touched and not allowed):
        yield f"local memory: a stack of {kernel.stack} bytes, {kernel.local} local, {touched} accesses"

    declared = kernel.ptx.shared
    keeps = kernel.architecture >= 90 and (declared or kernel.ptx.has_dynamic or kernel.shared == 1024)
    reserved = 1024 if keeps else 0  # also where only another kernel of the source has shared memory
    for_another = kernel.name.startswith("_ZN3cub") and kernel.ptx.architecture != kernel.architecture
    if not 0 <= kernel.shared - reserved - declared <= kernel.ptx.padding and not for_another:
        yield (f"{kernel.shared} bytes of static shared memory; the PTX declares {declared}, "
               f"{reserved} are reserved")
    if operands(kernel) and declared > SHARED_BESIDE_TILES:
        yield (f"{declared} bytes of static shared memory beside its tiles; "
               f"the plan leaves {SHARED_BESIDE_TILES}")


def is_written_as_meant(kernel):
    writes_fma = any(re.search(name, kernel.name) for name in WRITES_FMA)
    for operation in sorted(kernel.ptx.operations):
        if INEXACT.search(operation):
            yield f"PTX: {operation}: not rounded once to nearest, or a driver may contract it"
        if IN_HALVES.match(operation):
            yield f"PTX: {operation}: arithmetic in 16 bits"
        if ATOMIC.match(operation):
            yield f"PTX: {operation}: a sum in no order"
        if re.match(r"fma\.rn\.f(32|64)$", operation) and not writes_fma:
            yield f"PTX: {operation}: a contraction, or WRITES_FMA lacks this kernel"
        if operation.startswith("ld.global.nc") and not kernel.name.startswith("_ZN3cub"):
            yield f"PTX: {operation}: the same launch may write what it reads"
        if operation.startswith("call"):
            yield f"PTX: {operation}: a function that is not inlined, whose operations are not counted here"


def multiplies_in_its_format(kernel):
    asked = {operation.replace("mma.sync.aligned.", "") for operation in kernel.ptx.operations
             if re.match(r"(w|wg)?mma\b", operation)}
    made = {opcode for opcode in kernel.own if re.match(r"[A-Z]+MMA\b", opcode)}
    _, mma, hmma = PRODUCTS.get(operands(kernel), ("", set(), set()))
    for where, meant, found in (("PTX", mma, asked), ("SASS", hmma, made)):
        for one in sorted(found - meant):
            yield f"{where}: {one}: not a product of this kernel's format"
        for one in sorted(meant - found):
            yield f"{where}: no {one}: this kernel's products"
    needed = {"FP16": [r"ldmatrix\.sync"], "BF16": [r"ldmatrix\.sync"], "FP32": [r"fma\.rn\.f32"]}
    copied = [r"cp\.async"] if re.search(r"7(Mma|Fma)Tile", kernel.name) else []
    for operation in needed.get(operands(kernel), []) + copied:
        if not kernel.ptx.has(operation):
            yield f"PTX: no {plain(operation)}: operands or products come another way"


def computes_what_is_written(kernel):
    ptx, explained, found = kernel.ptx, Counter(), Counter()
    for counted, needed, takes in EXPANSIONS:
        times = sum(count for opcode, count in kernel.own.items() if re.fullmatch(counted, opcode))
        if times and not ptx.has(needed):
            yield f"SASS: {times} times {plain(counted)}, and no {plain(needed)} in its PTX"
        elif times:
            explained.update({kind: times * count for kind, count in takes.items()})
    for opcode, count in kernel.own.items():
        if ROUNDED_OTHERWISE.match(opcode) and not re.fullmatch(r"I2F(\.U32)?\.RP", opcode):
            yield f"SASS: {opcode}: rounds another way than to nearest"
        elif re.match(r"U?[FD]FMA|MUFU", opcode) or ".FTZ" in opcode:
            found[re.sub(r"^U|(?<=F2I\.FTZ).*", "", opcode)] += count
        if re.match(r"(RED|ATOM)\w*\..*\bB?F(16|32|64)", opcode):
            yield f"SASS: {opcode}: a sum in no order"
    written = {"FFMA": ptx.has(r"fma\.rn\.f32"), "DFMA": ptx.has(r"fma\.rn\.f64")}
    for kind, count in sorted(found.items()):
        if count > explained[kind] and not written.get(kind):
            yield f"SASS: {count} times {kind}; divisions and roots explain {explained[kind]}"
    for kind, is_written in written.items():
        if is_written and not found[kind]:
            yield f"SASS: no {kind}, and an fma in its PTX"
    for function in sorted(kernel.functions):
        if not any(re.fullmatch(name, function) and ptx.has(needed) for name, needed in SLOW_PATHS):
            yield f"SASS: the function {function}, which nothing in its PTX calls for"
    if any(re.match(r"LDG\b.*CONSTANT", opcode) for opcode in kernel.own) and not ptx.has(r"ld\.global\.nc"):
        yield "SASS: LDG.CONSTANT, and no ld.global.nc in its PTX"
    for text in sorted({text for text in kernel.halves if not MOVED_HALVES.match(text)})[:3]:
        yield f"SASS: {text}: arithmetic in 16 bits"


def judge(kernels):
    for kernel in kernels:
        for rule in (has_room, is_written_as_meant, multiplies_in_its_format, computes_what_is_written):
            for complaint in rule(kernel):
                yield f"sm_{kernel.architecture} {family(kernel)}: {complaint}\n    {kernel.name}"


def judge_launches(sources, kernels):
    bounds = defaultdict(list)
    for kernel in kernels:
        bounds[own_name(kernel.name)].append(kernel.ptx.threads)
    files = sorted(sources.rglob("*.[ch][up]*")) if sources.is_dir() else [sources]
    texts = {path: path.read_text() for path in files}
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
            if "launch(" not in statement:  # a LaunchShape, and the launch behind it
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


def judge_planted(source, nvcc, tools, work):
    """Compiles kernels with faults, asks for the complaints their file announces, tells what it missed."""
    house = "-fmad=false -ftz=false -prec-div=true -prec-sqrt=true"  # scripts/targets.cmake
    announced = defaultdict(list)
    line = re.compile(r"^//= (.*?) \| (.*?) \|(?: (.*))?$", re.M)
    for flags, kernel, complaint in line.findall(source.read_text()):
        announced[flags].append((kernel, complaint))
    for flags, expected in announced.items():
        binary = work / f"planted{len(list(work.iterdir()))}.fatbin"
        options = (house if flags == "house" else flags).split()
        output(nvcc, "-std=c++20", *options, "-arch=sm_90", "-fatbin", "-o", binary, source)
        kernels, said = read_library(binary, tools, binary.with_suffix(""))
        said += [*judge(kernels), *judge_launches(source, kernels)]
        for kernel, complaint in expected:
            heard = [line for line in said if line.startswith((f"sm_90 {kernel}: ", f"{kernel}: "))]
            if not any(complaint in line for line in heard) if complaint else heard:
                yield f"planted {kernel}, {flags}: expected '{complaint or 'no complaint'}', heard {heard}"
        if flags == "house":  # what no compiler gives
            innocent = next(kernel for kernel in kernels if own_name(kernel.name) == "innocent")
            for change in ({"registers": 256}, {"shared": 4096}, {"local": 8}, {"functions": {"__cuda_new"}},
                           {"own": innocent.own + Counter(FFMA=1)}, {"own": innocent.own + Counter(STL=1)},
                           {"ptx": replace(innocent.ptx, threads=1024, blocks=8)}):
                if not list(judge([replace(innocent, **change)])):
                    yield f"planted {change}: expected a complaint, heard none"
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
    for option in ("--tools", "--sources", "--probe", "--planted"):
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
    complaints += judge(kernels)
    if given.sources:
        complaints += judge_launches(given.sources, kernels)
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
