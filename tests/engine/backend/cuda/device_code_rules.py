"""Rules for what nvcc and its assembler make of the CUDA back end (device_code.py reads it). For each
kernel:

  resources  At most 255 registers. Blocks of .maxntid threads, .minnctapersm of them, fit a multiprocessor's
             threads and its 65536 registers. No local memory (stack, LDL, STL). Static shared memory is
             what the PTX declares, and 1 KiB that sm_90 and newer keep for themselves where there is any.
  tiles      A product's tile is in the tables of product_plan.hpp, each of which has its kernels on each
             architecture. Launch bounds are the threads that the launcher gives it, static shared memory
             fits what the plan leaves beside its slices, and the smallest of a table fits each architecture.
  launches   Who launches more than 256 threads, or a number that is not known here, has launch bounds.
  PTX        Every FP32 and FP64 add, sub, mul, fma, div, sqrt, rcp says .rn, so that no driver contracts; no
             .ftz, .approx, .full; no arithmetic in 16 bits; no atomics of floats; fma in WRITES_FMA only,
             ld.global.nc in CUB only; drivers get --fmad false. Optimizers divide and take roots.
  mma        A product multiplies in its own format, nothing else multiplies, and SASS has the HMMA of these:
             on sm_75 m16n8k8 of FP16 alone, and a trap where nothing is launched.
  SASS       A division is an expansion: its fast path is in the kernel, its slow path is a function with
             a name (SLOW_PATHS). So a kernel's own code has at most the FFMA, DFMA, MUFU and .FTZ that
             EXPANSIONS gives to as many divisions and roots as its FCHK, MUFU.RSQ, ... count; and these only
             if its PTX has the operation. FFMA is free where the PTX has fma.rn.f32, DFMA where it has
             fma.rn.f64. LDG.CONSTANT only where it has ld.global.nc. Every rounding is to nearest."""
import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass

from device_code import own_name

# Kernels whose source writes an fma.
WRITES_FMA = [
    r"multiply_tiles.*7FmaTile",  # the FP32 chain of a product
]
# Kernels that divide and take roots as IEEE 754 has it.
DIVIDES = r"13update_weightI\w*?(8AdamKind|15AdamWeightDecay|7Rmsprop|13LambDirection)"

# A multiprocessor's threads, and KiB of shared memory that a block may have (CUDA C++ Programming Guide,
# "Technical Specifications per Compute Capability").
LIMITS = {75: (1024, 64), 80: (2048, 163), 86: (1536, 99), 89: (1536, 99), 90: (2048, 227), 100: (2048, 227),
          120: (1536, 99)}

# A product's tile in its mangled name; its mma in PTX and in SASS, those of halves of blocks last.
HALF = r"(7Mma|10Gather)TileINS_10SmallFloatINS_6FormatILi"
PRODUCTS = {  # sm_75 has the last of FP16's
    "FP16": (HALF + "5ELi11E", ("m16n8k16.row.col.f32.f16.f16.f32", "m16n8k8.row.col.f32.f16.f16.f32"),
             ("HMMA.16816.F32", "HMMA.1688.F32")),
    "BF16": (HALF + "8ELi8E", ("m16n8k16.row.col.f32.bf16.bf16.f32", "m16n8k8.row.col.f32.bf16.bf16.f32"),
             ("HMMA.16816.F32.BF16", "HMMA.1688.F32.BF16")),
    "TF32": (r"(7Mma|10Gather)TileIf",
             ("m16n8k8.row.col.f32.tf32.tf32.f32", "m16n8k4.row.col.f32.tf32.tf32.f32"),
             ("HMMA.1688.F32.TF32", "HMMA.1684.F32.TF32")),
    "FP32": (r"7FmaTile", (), ()),
}
ON_SM_75 = ("FP16", "FP32")
# The tables of product_plan.hpp, and the tiles that are cut by them: m, n, a warp's m and n, stages.
TABLES = {"mma_shapes": r"7MmaTile\w*?Li(\d+)ELi(\d+)ELi(\d+)ELi(\d+)ELi(\d+)EEE",
          "gather_shapes": r"10GatherTile\w*?Li(\d+)ELi(\d+)ELi(\d+)ELi(\d+)ELi(\d+)EEE",
          "fma_shapes": r"7FmaTileILi(\d+)ELi(\d+)E()()Li(\d+)EEE"}

# What one operation takes at most in a kernel's own code. So ptxas of 12.1, 12.4, 12.9 and 13.0 has it, from
# sm_80 to sm_120; a division by a constant has no MUFU, divisions by the same number share one.
CUB = "_ZN7fp16lab3cub"  # the namespace that the back end gives to CUB (THRUST_CUB_WRAPPED_NAMESPACE)
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
MOVED_HALVES = re.compile(r"HADD2\.F32 \S+, -RZ, |HFMA2(\.MMA|\.BF16_V2)? \S+, -RZ, RZ, "
                          r"|HADD2(\.F32 \S+, \S+\.H[01]_H[01]| \S+, \S+\.F32), -RZ\.H0_H0$")  # of sm_75
ROUNDED_OTHERWISE = re.compile(r"((F|D)(ADD|MUL|FMA)|F2FP?|I2F).*\.R[MPZ]\b")


def plain(pattern):
    return pattern.replace("\\", "")


def operands(kernel):
    return next((kind for kind, (tile, _, _) in PRODUCTS.items() if re.search(tile, kernel.name)), "")


def family(kernel):
    return f"{own_name(kernel.name)} {operands(kernel)}".strip()


@dataclass
class Plan:
    """What product_plan.hpp says of tiles."""
    beside: int  # bytes of static shared memory that it leaves to a kernel
    slice: int  # bytes of k in a slice
    tables: dict  # {"mma_shapes": [(m, n, a warp's m, and n, stages)], ...}

    def shared(self, shape):
        return shape[4] * (shape[0] + shape[1]) * self.slice + self.beside

    def tile_of(self, kernel):
        """Its table and its shape there: None where there is no such one."""
        for table, name in TABLES.items():
            if said := re.search(name, kernel.name):
                cut = [int(number) if number else None for number in said.groups()]
                return table, next((shape for shape in self.tables[table]
                                    if all(b in (None, a) for a, b in zip(shape, cut))), None)
        return None, None

    def is_launched(self, kernel):
        _, shape = self.tile_of(kernel)
        fits = shape is None or self.shared(shape) <= 64 * 1024
        return kernel.architecture >= 80 or not operands(kernel) or (fits and operands(kernel) in ON_SM_75)


def read_plan(text):
    def number(name):
        return math.prod(map(int, re.search(rf"{name} = ([\d *]+);", text)[1].split("*")))

    def table(name):
        said = re.search(rf"{name}(?:\[\d+\])?\{{(.*?)\}};", text, re.S)[1]
        return [tuple(map(int, row.split(", "))) for row in re.findall(r"\{(\d+(?:, \d+){4})\}", said)]
    return Plan(number("static_shared_bytes"), number("slice_bytes"), {name: table(name) for name in TABLES})


def has_room(kernel, _):
    if kernel.architecture not in LIMITS:
        yield f"LIMITS lack sm_{kernel.architecture}"
    if kernel.registers > 255:
        yield f"{kernel.registers} registers a thread; 255 are all there are"
    threads, blocks = kernel.ptx.threads or 256, kernel.ptx.blocks
    taken = -(-kernel.registers // 8) * 8 * -(-threads // 32) * 32 * blocks  # a warp takes them by 256
    if taken > 65536:
        yield f"{blocks} blocks of {threads} threads with {kernel.registers} registers take {taken} of 65536"
    most = LIMITS.get(kernel.architecture, (threads * blocks,))[0]
    if threads * blocks > most:
        yield f"{blocks} blocks of {threads} threads on a multiprocessor of {most}"

    touched = sum(count for opcode, count in kernel.own.items() if opcode.startswith(("LDL", "STL")))
    if kernel.local or kernel.stack or touched:
        yield f"local memory: a stack of {kernel.stack} bytes, {kernel.local} local, {touched} accesses"

    declared = kernel.ptx.shared
    keeps = kernel.architecture >= 90 and (declared or kernel.ptx.has_dynamic or kernel.shared == 1024)
    reserved = 1024 if keeps else 0  # also where only another kernel of the source has shared memory
    another = kernel.ptx.architecture != kernel.architecture
    for_another = another and (kernel.name.startswith(CUB) or kernel.own["BPT.TRAP"])
    if not 0 <= kernel.shared - reserved - declared <= kernel.ptx.padding and not for_another:
        yield (f"{kernel.shared} bytes of static shared memory; the PTX declares {declared}, "
               f"{reserved} are reserved")


def has_the_plans_tile(kernel, plan):
    table, shape = plan.tile_of(kernel)
    if table and not shape:
        yield f"{table} have no such tile"
    if not shape:
        return
    m, n, warp_m, warp_n, _ = shape
    threads = 32 * (m // warp_m) * (n // warp_n)
    if kernel.ptx.threads != threads:
        yield f"launch bounds of {kernel.ptx.threads} threads; the launcher gives it {threads}"
    if kernel.ptx.shared > plan.beside:
        yield (f"{kernel.ptx.shared} bytes of static shared memory beside its tiles; "
               f"the plan leaves {plan.beside}")
    most = LIMITS.get(kernel.architecture, (0, 0))[1] * 1024
    if shape == plan.tables[table][0] and plan.shared(shape) > most:
        yield f"{plan.shared(shape)} bytes of shared memory; a block has {most}, and there is no smaller tile"


def is_written_as_meant(kernel, _):
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
        if operation.startswith("ld.global.nc") and not kernel.name.startswith(CUB):
            yield f"PTX: {operation}: the same launch may write what it reads"
        if re.match(r"call\b", operation):
            yield f"PTX: {operation}: a function that is not inlined, whose operations are not counted here"


    if re.search(DIVIDES, kernel.name):
        for operation in (r"div\.rn\.f32", r"sqrt\.rn\.f32"):
            if not kernel.ptx.has(operation):
                yield f"PTX: no {plain(operation)}: an optimizer that divides by a root"


def multiplies_in_its_format(kernel, plan):
    asked = {operation.replace("mma.sync.aligned.", "") for operation in kernel.ptx.operations
             if re.match(r"(w|wg)?mma\b", operation)}
    made = {opcode for opcode in kernel.own if re.match(r"[A-Z]+MMA\b", opcode)}
    _, mma, hmma = PRODUCTS.get(operands(kernel), ("", (), ()))
    launched, in_turings_ptx = plan.is_launched(kernel), kernel.ptx.architecture < 80

    def on(is_turing, all_of_them):
        return set(() if is_turing and not launched else all_of_them[1:] if is_turing else all_of_them)
    for where, meant, found in (("PTX", on(in_turings_ptx, mma), asked),
                                ("SASS", on(kernel.architecture < 80, hmma), made)):
        for one in sorted(found - meant):
            yield f"{where}: {one}: not a product of this kernel's format"
        for one in sorted(meant - found):
            yield f"{where}: no {one}: this kernel's products"
    if not launched:
        if not kernel.own["BPT.TRAP"]:
            yield "SASS: no BPT.TRAP: nothing launches this on sm_75, and it is not a trap"
        return
    needed = {"FP16": [r"ldmatrix\.sync"], "BF16": [r"ldmatrix\.sync"], "FP32": [r"fma\.rn\.f32"]}
    copied = [r"cp\.async"] if re.search(r"7(Mma|Fma)Tile", kernel.name) and not in_turings_ptx else []
    for operation in needed.get(operands(kernel), []) + copied:
        if not kernel.ptx.has(operation):
            yield f"PTX: no {plain(operation)}: operands or products come another way"


def computes_what_is_written(kernel, plan):
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
        if is_written and not found[kind] and plan.is_launched(kernel):
            yield f"SASS: no {kind}, and an fma in its PTX"
    for function in sorted(kernel.functions):
        if not any(re.fullmatch(name, function) and ptx.has(needed) for name, needed in SLOW_PATHS):
            yield f"SASS: the function {function}, which nothing in its PTX calls for"
    if any(re.match(r"LDG\b.*CONSTANT", opcode) for opcode in kernel.own) and not ptx.has(r"ld\.global\.nc"):
        yield "SASS: LDG.CONSTANT, and no ld.global.nc in its PTX"
    for text in sorted({text for text in kernel.halves if not MOVED_HALVES.match(text)})[:3]:
        yield f"SASS: {text}: arithmetic in 16 bits"


def judge(kernels, plan):
    rules = (has_room, has_the_plans_tile, is_written_as_meant, multiplies_in_its_format,
             computes_what_is_written)
    tiles = defaultdict(set)  # shapes of each architecture and table
    for kernel in kernels:
        for rule in rules:
            for complaint in rule(kernel, plan):
                yield f"sm_{kernel.architecture} {family(kernel)}: {complaint}\n    {kernel.name}"
        table, shape = plan.tile_of(kernel)
        tiles[kernel.architecture, table].add(shape)
    for (architecture, table), shapes in tiles.items():
        for shape in sorted(set(plan.tables.get(table, ())) - shapes):
            yield f"product_plan.hpp: {table}: no kernel on sm_{architecture} has the tile {shape}"
