#!/usr/bin/env python3
"""Every row of tensor cores against mmasim, Microsoft's MMA-Sim on PyPI: scripts/rows_against_mmasim.py PROGRAM

For every instruction of mmasim that a row of ours describes, random lines of six kinds (any words, N(0, 1), every exponent,
subnormal numbers, special values, sums aimed at ties, floors and zeros) are computed by mmasim, and `fp16lab mma --verify`
judges them: NaN patterns and the signs of zeros count. Then the instructions that mmasim has and we lack are listed.
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
WORDS = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16,
         torch.float8_e4m3fn: torch.uint8, torch.float8_e5m2: torch.uint8}
FORMATS = {torch.float32: (8, 23), torch.float16: (5, 10), torch.bfloat16: (8, 7), torch.float8_e4m3fn: (4, 3),
           torch.float8_e5m2: (5, 2)}  # bits of the exponent and of the fraction
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
    """The model, operands and accumulator that `fp16lab mma` takes; None where no row of ours describes it."""
    if of not in (nv.MMA, nv.WGMMA, nv.TCGen05MMA):
        return None
    d, a, b, *c = [part for part in name.split(".")[1:] if not part.startswith("kind")]
    if c and c[0] != d:
        return None  # m8n8k4.f32.f16.f16.f16, whose c keeps FP16's exponents in the alignment
    if a not in ("f16", "bf16", "tf32", "e4m3", "e5m2") or b not in ("f16", "bf16", "tf32", "e4m3", "e5m2"):
        return None
    eight = a.startswith("e")
    model = {nv.WGMMA: "hopper-wgmma", nv.TCGen05MMA: "blackwell-tcgen05"}.get(of, GENERATIONS[architecture])
    if architecture == "RTX Blackwell" and eight:
        model = "blackwell-tcgen05"  # its FP8 units are those of tcgen05
    if architecture == "Turing" and name.startswith("m8n8k4"):
        model = "volta"
    return model, a, b, d


def numbers(kind, dtype, shape, random):
    """`shape` numbers of a format, as tensors of it."""
    exponent_bits, fraction_bits = FORMATS[dtype]
    word = WORDS[dtype]
    low = 2 ** (exponent_bits - 1) - 2 + fraction_bits  # the least number is 2^-low
    if kind == "normal":
        return torch.randn(shape, generator=random).to(dtype)
    if kind == "exponents":
        high = 2 ** (exponent_bits - 1) - 1
        powers = torch.randint(-low, high + 1, shape, generator=random).double()
        signed = torch.rand(shape, generator=random, dtype=torch.float64) * 4 - 2
        return (signed * 2.0**powers).to(torch.float32).to(dtype)
    if kind == "subnormal":
        codes = torch.randint(0, 2 ** (fraction_bits + 2), shape, generator=random)
        signs = torch.randint(0, 2, shape, generator=random) << (exponent_bits + fraction_bits)
        return _as(codes | signs, dtype)
    codes = torch.randint(0, 2 ** (1 + exponent_bits + fraction_bits), shape, generator=random)
    if kind == "special":
        largest = ((2**exponent_bits - 1) << fraction_bits) - 1
        sign = 1 << (exponent_bits + fraction_bits)
        values = torch.tensor([0, sign, 1, sign | 1, largest, largest + 1, sign | (largest + 1), largest + 2, sign - 1])
        chosen = values[torch.randint(0, len(values), shape, generator=random)]
        plain = numbers("normal", dtype, shape, random)
        mostly = torch.rand(shape, generator=random) < 0.8
        return torch.where(mostly, plain.float(), _as(chosen, dtype).float()).to(dtype)
    return _as(codes, dtype)


def _as(codes, dtype):
    word = WORDS[dtype]
    bits = 8 * word.itemsize
    return torch.where(codes >= 2 ** (bits - 1), codes - 2**bits, codes).to(word).view(dtype) if word != torch.uint8 else \
        codes.to(word).view(dtype)


def aimed(op, c_type, count, random):
    """Sums whose last bits decide: powers of two that meet near the output's last place, the exponent floor and zero."""
    def powers(dtype, shape, least, greatest):
        exponent = torch.randint(least, greatest + 1, shape, generator=random).double()
        sign = torch.randint(0, 2, shape, generator=random).double() * 2 - 1
        odd = 1 + torch.randint(0, 2, shape, generator=random).double() / 4
        return (sign * odd * 2.0**exponent).float().to(dtype)

    exponent_bits, fraction_bits = FORMATS[op.a_type]
    least = -(2 ** (exponent_bits - 1) - 2 + fraction_bits)
    # Half of the lines are at the bottom of the formats, half about 1.
    shape = (count // 2, op.k)
    bottom_a, bottom_b = powers(op.a_type, shape, least, least + 14), powers(op.b_type, shape, least, least + 14)
    upper_a, upper_b = powers(op.a_type, shape, -14, 1), powers(op.b_type, shape, -14, 1)
    a, b = torch.cat([bottom_a.float(), upper_a.float()]), torch.cat([bottom_b.float(), upper_b.float()])
    few = torch.rand(a.shape, generator=random) < 3 / op.k
    few[:, 0] = True
    a = a * few
    c_exponents, c_fraction = FORMATS[c_type]
    c_least = -(2 ** (c_exponents - 1) - 2 + c_fraction)
    c = torch.cat([powers(c_type, (count // 2,), c_least, c_least + 14).float(),
                   powers(c_type, (count // 2,), -14, 2).float()])
    c = c * (torch.rand(c.shape, generator=random) < 0.5)
    return a.to(op.a_type), b.to(op.b_type), c.to(c_type)


def words(tensor):
    bits = 8 * WORDS[tensor.dtype].itemsize
    return [[f"{word & (2**bits - 1):0{bits // 4}x}" for word in line] for line in
            tensor.contiguous().view(WORDS[tensor.dtype]).reshape(tensor.shape[0], -1).tolist()]


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
        model, a_name, b_name, d_name = row
        op = of(architecture, name)
        count = 2 * (options.lines // 2)
        for kind in KINDS:
            if kind == "aimed":
                a, b, c = aimed(op, op.c_type, count, random)
            else:
                a, b = (numbers(kind, dtype, (count, op.k), random) for dtype in (op.a_type, op.b_type))
                c = numbers(kind, op.c_type, (count,), random)
            d = op.dpa(a, b, c)
            text = "\n".join("\t".join(map(" ".join, line)) for line in zip(words(a), words(b), words(c), words(d)))
            told = subprocess.run(
                [options.program, "mma", "--quiet", "--verify", "--model", model, "--in", a_name, "--in-b", b_name,
                 "--acc", d_name], input=text + "\n", text=True, capture_output=True)
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
