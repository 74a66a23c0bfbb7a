#!/usr/bin/env python3
"""Every row of tensor cores against mmasim, Microsoft's MMA-Sim on PyPI: scripts/rows_against_mmasim.py PROGRAM

For every instruction of mmasim that a row of ours describes, random lines of six kinds (any words, N(0, 1), every exponent,
subnormal numbers, special values, sums aimed at ties, floors and zeros) are computed by mmasim, and `fp16lab mma --verify`
judges them: NaN patterns and the signs of zeros count, but for FP64's NaN, whose pattern mmasim takes from its processor.
Then the instructions that mmasim has and we lack are listed.
Exit code 1 where a line differs. Needs mmasim and torch (PyPI); the target `rows_against_mmasim` installs them.
"""
import argparse
import collections
import importlib.metadata
import re
import subprocess

import mmasim.amd
import mmasim.amd.isa_mfma as mfma
import mmasim.nv_ptx as nv
import mmasim.nv_ptx.isa_mma as mma
import mmasim.nv_ptx.isa_tcgen05mma as tcgen05
import mmasim.nv_ptx.isa_wgmma as wgmma
import torch

GENERATIONS = {"Volta": "volta", "Turing": "turing", "Ampere": "ampere", "Ada Lovelace": "ada", "Hopper": "hopper",
               "Blackwell": "blackwell", "RTX Blackwell": "blackwell"}
WORDS = {torch.float64: torch.int64, torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16,
         torch.float8_e4m3fn: torch.uint8, torch.float8_e5m2: torch.uint8}
FORMATS = {torch.float64: (11, 52), torch.float32: (8, 23), torch.float16: (5, 10), torch.bfloat16: (8, 7),
           torch.float8_e4m3fn: (4, 3), torch.float8_e5m2: (5, 2)}  # bits of the exponent and of the fraction
SMALL = {"e3m2": (3, 2), "e2m3": (2, 3), "e2m1": (2, 1)}  # torch has them as codes in bytes
OPERANDS = ("f64", "f16", "bf16", "tf32", "e4m3", "e5m2", *SMALL)
KINDS = ("words", "normal", "exponents", "subnormal", "special", "aimed")


def instructions():
    """(class, architecture, name) of all, one N an instruction of wgmma and tcgen05: N changes no number."""
    tables = [(nv.MMA, mma.mma_shape_and_type), (nv.MMABlockScale, mma.mma_block_scale_shape_and_type),
              (nv.WGMMA, wgmma.wgmma_shape_and_type), (nv.TCGen05MMA, tcgen05.tcgen05mma_shape_and_type),
              (nv.TCGen05MMABlockScale, tcgen05.tcgen05mma_block_scale_shape_and_type),
              (mmasim.amd.MFMA, {"CDNA1": mfma.cdna1_mfma_suffix, "CDNA2": mfma.cdna2_mfma_suffix,
                                 "CDNA3": mfma.cdna3_mfma_suffix})]
    for of, table in tables:
        seen = set()
        for architecture, names in table.items():
            for name in names:
                one = name if of in (nv.MMA, nv.MMABlockScale, mmasim.amd.MFMA) else re.sub(r"^m\d+n\d+", "", name)
                if (architecture, one) not in seen:
                    seen.add((architecture, one))
                    yield of, architecture, name


def row_of(of, architecture, name):
    """The model, operands, accumulator and other options of `fp16lab mma`; None where no row of ours describes it."""
    if of is mmasim.amd.MFMA:
        return None
    d, a, b, *c = [part for part in name.split(".")[1:] if not part.startswith(("kind", "block"))]
    if a not in OPERANDS or b not in OPERANDS:
        return None
    if of in (nv.MMABlockScale, nv.TCGen05MMABlockScale):
        model = "blackwell-mxf8f6f4" if "mxf8f6f4" in name else "blackwell-mxf4nvf4"
        return model, a, b, d, ["--scale", c[-1].removeprefix("u") if c[-1] == "ue8m0" else c[-1]]
    eight = a.startswith("e")
    model = {nv.WGMMA: "hopper-wgmma", nv.TCGen05MMA: "blackwell-tcgen05"}.get(of, GENERATIONS[architecture])
    if architecture == "RTX Blackwell" and eight:
        model = "blackwell-tcgen05"  # its units of 8 bits and fewer are those of tcgen05
    if architecture == "Turing" and name.startswith("m8n8k4"):
        model = "volta"
    # c of m8n8k4.f32.f16.f16.f16 is an FP16 number, which keeps FP16's exponents in the alignment.
    return model, a, b, d, ["--subnormal-accumulator", "fp16_emin"] if c and c[0] != d else []


def numbers(kind, dtype, shape, random):
    """`shape` numbers of a format, as tensors of it."""
    exponent_bits, fraction_bits = FORMATS[dtype]
    word = WORDS[dtype]
    low = 2 ** (exponent_bits - 1) - 2 + fraction_bits  # the least number is 2^-low
    if kind == "normal":
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        return torch.randn(shape, generator=random, dtype=wide).to(dtype)
    if kind == "exponents":
        high = 2 ** (exponent_bits - 1) - 1
        powers = torch.randint(-low, high + 1, shape, generator=random).double()
        signed = torch.rand(shape, generator=random, dtype=torch.float64) * 4 - 2
        return (signed * 2.0**powers).to(dtype if dtype == torch.float64 else torch.float32).to(dtype)
    if kind == "subnormal":
        codes = torch.randint(0, 2 ** (fraction_bits + 2), shape, generator=random)
        signs = torch.randint(0, 2, shape, generator=random) << (exponent_bits + fraction_bits)
        return _as(codes | signs, dtype)
    if dtype == torch.float64 and kind == "words":
        return torch.randint(-(2**63), 2**63 - 1, shape, generator=random).view(dtype)
    codes = torch.randint(0, 2 ** min(62, 1 + exponent_bits + fraction_bits), shape, generator=random)
    if kind == "special":
        largest = ((2**exponent_bits - 1) << fraction_bits) - 1
        sign = 1 << (exponent_bits + fraction_bits)
        sign = -sign if dtype == torch.float64 else sign  # torch has no words of 64 bits without a sign
        values = torch.tensor([0, sign, 1, sign | 1, largest, largest + 1, sign | (largest + 1), largest + 2,
                               abs(sign) - 1])
        chosen = values[torch.randint(0, len(values), shape, generator=random)]
        plain = numbers("normal", dtype, shape, random)
        mostly = torch.rand(shape, generator=random) < 0.8
        wide = dtype if dtype == torch.float64 else torch.float32
        return torch.where(mostly, plain.to(wide), _as(chosen, dtype).to(wide)).to(dtype)
    return _as(codes, dtype)


def small_codes(kind, name, shape, random):
    """Codes of a format of 6 or 4 bits, all of which are numbers."""
    exponent_bits, fraction_bits = SMALL[name]
    sign = 2 ** (exponent_bits + fraction_bits)
    if kind == "normal":
        magnitudes = torch.arange(sign)
        fields, fractions = magnitudes >> fraction_bits, magnitudes % 2**fraction_bits
        exponents = fields.clamp(min=1) - 2 ** (exponent_bits - 1) + 1 - fraction_bits
        values = (fractions + (fields > 0) * 2**fraction_bits) * 2.0**exponents
        x = torch.randn(shape, generator=random)
        return (x.abs().unsqueeze(-1) - values).abs().argmin(-1) | (x < 0) * sign
    signs = torch.randint(0, 2, shape, generator=random) * sign
    if kind == "subnormal":
        return torch.randint(0, 2 ** (fraction_bits + 1), shape, generator=random) | signs
    if kind in ("special", "aimed"):  # zeros, the smallest and the largest; powers of two among zeros
        powers = torch.arange(2**exponent_bits) << fraction_bits
        values = torch.tensor([0, 1, sign - 1]) if kind == "special" else torch.cat([powers * 0, powers])
        return values[torch.randint(0, len(values), shape, generator=random)] | signs
    return torch.randint(0, 2 * sign, shape, generator=random)


def small_tensor(codes, name, packed):
    """As mmasim takes them: two of FP4 in a byte, the first one above; FP6 in the low bits, FP4 in bits 5 to 2."""
    if packed:
        return (codes[..., ::2] << 4 | codes[..., 1::2]).to(torch.uint8)
    return (codes << 2 if name == "e2m1" else codes).to(torch.uint8)


def scale_codes(kind, name, shape, random):
    """Codes of block scales: any; about 1; or near the bottom and the top of FP32's sums."""
    last, one = (255, 127) if name == "e8m0" else (127, 56)
    near = one - 4 + torch.randint(0, 9, shape, generator=random)
    every = torch.randint(0, last + 1, shape, generator=random)
    if kind in ("words", "exponents"):
        return every if kind == "words" else every.clamp(max=last - 1)
    if kind == "special":
        extremes = torch.tensor([0, 1, last - 1, last])[torch.randint(0, 4, shape, generator=random)]
        return torch.where(torch.rand(shape, generator=random) < 0.9, near, extremes)
    if kind == "normal" or name != "e8m0":
        return near
    reach = torch.tensor([-68, -66, -62, 0, 58, 62])[torch.randint(0, 6, (shape[0], 1), generator=random)]
    return near + reach


def _as(codes, dtype):
    word = WORDS[dtype]
    bits = 8 * word.itemsize
    if bits == 64:
        return codes.view(dtype)
    return torch.where(codes >= 2 ** (bits - 1), codes - 2**bits, codes).to(word).view(dtype) if word != torch.uint8 else \
        codes.to(word).view(dtype)


def aimed(op, c_type, count, random):
    """Sums whose last bits decide: powers of two that meet near the output's last place, the exponent floor and zero."""
    def powers(dtype, shape, least, greatest):
        exponent = torch.randint(least, greatest + 1, shape, generator=random).double()
        sign = torch.randint(0, 2, shape, generator=random).double() * 2 - 1
        odd = 1 + torch.randint(0, 2, shape, generator=random).double() / 4
        value = sign * odd * 2.0**exponent
        return value if dtype == torch.float64 else value.float().to(dtype)

    exponent_bits, fraction_bits = FORMATS[op.a_type if op.a_type in FORMATS else op.b_type]
    least = -(2 ** (exponent_bits - 1) - 2 + fraction_bits)
    # Half of the lines are at the bottom of the formats, half about 1.
    shape = (count // 2, op.k)
    bottom_a, bottom_b = powers(op.a_type, shape, least, least + 14), powers(op.b_type, shape, least, least + 14)
    upper_a, upper_b = powers(op.a_type, shape, -14, 1), powers(op.b_type, shape, -14, 1)
    a, b = torch.cat([bottom_a.double(), upper_a.double()]), torch.cat([bottom_b.double(), upper_b.double()])
    few = torch.rand(a.shape, generator=random) < 3 / op.k
    few[:, 0] = True
    a = a * few
    c_exponents, c_fraction = FORMATS[c_type]
    c_least = -(2 ** (c_exponents - 1) - 2 + c_fraction)
    c = torch.cat([powers(c_type, (count // 2,), c_least, c_least + 14).double(),
                   powers(c_type, (count // 2,), -14, 2).double()])
    c = c * (torch.rand(c.shape, generator=random) < 0.5)
    return narrowed(a, op.a_type), narrowed(b, op.b_type), narrowed(c, c_type)


def narrowed(values, dtype):
    return values if dtype == torch.float64 else values.float().to(dtype)


def words_of_codes(codes):
    return hexadecimal(codes.to(torch.uint8).numpy())


def words(tensor):
    return hexadecimal(tensor.contiguous().view(WORDS[tensor.dtype]).reshape(tensor.shape[0], -1).numpy())


def hexadecimal(lines):
    """Each line's words in one text."""
    size = lines.itemsize
    text = lines.astype(f">i{size}" if size > 1 else "u1").tobytes()
    step = size * lines.shape[1]
    return [text[at:at + step].hex(" ", size) for at in range(0, len(text), step)]


def power_code(name, exponent):
    """The code of 2^exponent in a format of 8 bits and fewer."""
    exponent_bits, fraction_bits = SMALL[name] if name in SMALL else {"e4m3": (4, 3), "e5m2": (5, 2)}[name]
    field = exponent + 2 ** (exponent_bits - 1) - 1
    return torch.where(field > 0, field << fraction_bits, 1 << (field + fraction_bits - 1).clamp(min=0))


def at_the_floor(op, a_name, b_name, count, random):
    """Codes of a, b and both scales of E8M0: 2^-149, the least result, minus a power of two so far below that the
    alignment drops it or not, as the exponent floor has it."""
    lowest, highest = ([sum(ends) for ends in zip(*({"e4m3": (-9, 8), "e5m2": (-16, 15), "e3m2": (-4, 4), "e2m3": (-3, 2),
                                                     "e2m1": (-1, 2)}[name] for name in (a_name, b_name)))])
    a, b = torch.zeros(count, op.k, dtype=torch.int64), torch.zeros(count, op.k, dtype=torch.int64)
    blocks = op.k // op.block_size
    line, sign = torch.arange(count), torch.randint(0, 2, (count,), generator=random)
    exact = op.k == 64  # groups of 16: the second number is in another one, whose scales say how small it is
    gap = torch.randint(20, 34, (count,), generator=random) if exact else torch.randint(5, 14, (count,), generator=random)
    first = torch.randint(0, 16, (count,), generator=random)
    second = first + (32 if exact else 16)
    low = torch.full((count,), highest) if exact else (highest - gap).clamp(min=lowest)
    for at, exponent, negative in ((first, torch.full((count,), highest), sign), (second, low, 1 - sign)):
        for codes, name, part in ((a, a_name, exponent // 2), (b, b_name, exponent - exponent // 2)):
            negatives = negative * 2 ** sum(SMALL[name]) if name in SMALL else negative * 128
            codes[line, at] = power_code(name, part) | (negatives if codes is a else 0)
    total = torch.full((count, blocks), -149 - highest)
    if exact:
        total[:, blocks // 2:] -= gap.unsqueeze(-1)
    return a, b, total // 2 + 127, total - total // 2 + 127


def lines_of(op, kind, a_name, b_name, others, count, random):
    """What `fp16lab mma` reads before the d-word, as fields of all lines, and what mmasim takes."""
    scaled = "--scale" in others
    packed = scaled and op.k == 64
    plain = [dtype for dtype in (op.a_type, op.b_type) if dtype in FORMATS]
    if kind == "aimed" and plain:
        types = op.a_type, op.b_type
        op.a_type, op.b_type = (dtype if dtype in FORMATS else plain[0] for dtype in types)
        a, b, c = aimed(op, op.c_type, count, random)
        op.a_type, op.b_type = types
    else:
        draw = "normal" if kind == "aimed" else kind
        a, b = (numbers(draw, dtype, (count, op.k), random) if dtype in FORMATS else None
                for dtype in (op.a_type, op.b_type))
        c = numbers(draw, op.c_type, (count,), random)
    codes = [tensor.view(torch.uint8).long() if dtype.itemsize == 1 and dtype in FORMATS else
             None if dtype in FORMATS else small_codes(kind, name, (count, op.k), random)
             for tensor, dtype, name in ((a, op.a_type, a_name), (b, op.b_type, b_name))]
    blocks = (count, op.k // op.block_size) if scaled else ()
    scales = [scale_codes(kind, others[1], blocks, random) for _ in range(2 if scaled else 0)]
    if kind == "aimed" and scaled and others[1] == "e8m0":
        half = count // 2
        for drawn, aim in zip([*codes, *scales], at_the_floor(op, a_name, b_name, half, random)):
            drawn[:half] = aim
        c[:half] = 0
    fields, tensors = [], []
    for tensor, coded, dtype, name in ((a, codes[0], op.a_type, a_name), (b, codes[1], op.b_type, b_name)):
        fields.append(words(tensor) if coded is None else words_of_codes(coded))
        tensors.append(tensor if coded is None else coded.to(torch.uint8).view(dtype) if dtype in FORMATS else
                       small_tensor(coded, name, packed))
    fields += [words_of_codes(coded) for coded in scales]
    scales = [coded.to(torch.uint8).view(op.s_type) for coded in scales]
    fields.append(words(c.float() if op.c_type != op.d_type else c))
    return fields, [*tensors, c, *scales]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the fp16lab to judge")
    parser.add_argument("--lines", type=int, default=600, help="lines of each kind and instruction (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random = torch.Generator().manual_seed(options.seed)
    print(f"mmasim {importlib.metadata.version('mmasim')}, {options.lines} lines of each kind, seed {options.seed}")
    lines, wrong, have, lack = 0, 0, 0, collections.Counter()
    for of, architecture, name in instructions():
        row = row_of(of, architecture, name)
        if row is None:
            kind = name.split("kind::")[1].split(".")[0] if "kind::" in name else name.partition(".")[2] or name
            lack[f"{architecture}, {of.__name__}, {kind}"] += 1
            continue
        have += 1
        model, a_name, b_name, d_name, others = row
        op = of(architecture, name)
        count = 2 * (options.lines // 2)
        for kind in KINDS:
            fields, tensors = lines_of(op, kind, a_name, b_name, others, count, random)
            d = op.dpa(*tensors)
            if d.dtype == torch.float64:
                d = torch.where(d.isnan(), torch.tensor(2**63 - 1).view(torch.float64), d)
            text = "\n".join(map("\t".join, zip(*fields, words(d))))
            told = subprocess.run(
                [options.program, "mma", "--quiet", "--verify", "--model", model, "--in", a_name, "--in-b", b_name,
                 "--acc", d_name, *others], input=text + "\n", text=True, capture_output=True)
            if told.returncode not in (0, 5):
                raise SystemExit(told.stderr)
            differ = told.stdout.splitlines()
            lines += count
            wrong += len(differ)
            if differ:
                print(f"{architecture} {name} ({model}), {kind}: {len(differ)} of {count} lines differ, the first:")
                print("  " + differ[0])
    print(f"{have} instructions, {lines} lines, {wrong} differ")
    print(f"mmasim has {have + sum(lack.values())} instructions; these we lack:")
    for what, number in lack.items():
        print(f"  {number:4}  {what}")
    raise SystemExit(wrong > 0)


main()
