"""fp16lab.matmul and explain: published hardware vectors, the command line's bits, and exact fractions."""

from __future__ import annotations

import hashlib
import itertools
import json
from fractions import Fraction

import numpy as np
import pytest
from support import GOLDEN, command, filtered

import fp16lab

ml_dtypes = pytest.importorskip("ml_dtypes", reason="BF16 and FP8 arrays of numpy are ml_dtypes'")
DTYPE = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "tf32": np.dtype(np.float32),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "e3m2": np.dtype(ml_dtypes.float6_e3m2fn),
    "e2m3": np.dtype(ml_dtypes.float6_e2m3fn),
    "e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
}
SCALE = {"e8m0": np.dtype(ml_dtypes.float8_e8m0fnu), "ue4m3": np.dtype(ml_dtypes.float8_e4m3fn)}
SUMS = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16)}


def array_of(words: list[str], dtype: np.dtype) -> np.ndarray:
    return np.array([int(word, 16) for word in words], f"u{dtype.itemsize}").view(dtype)


def hexadecimal(words: np.ndarray) -> str:
    return " ".join(f"{word:0{2 * words.itemsize}x}" for word in words.tolist())


def golden_rows(fields: int = 10) -> list[list[str]]:
    rows = []
    for file in sorted(GOLDEN.glob("tensor_core_*.tsv")):
        for line in file.read_text().splitlines():
            if line and not line.startswith("#"):
                rows.append(line.split("\t"))
    # Those with options change a model.
    return [row for row in rows if len(row) == fields and (fields != 10 or row[4] == "-")]


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="no tests/golden: this is not a checkout")
def test_published_hardware_vectors():
    rows = golden_rows()
    assert len(rows) > 500
    for name, model, operands, sums, _, a, b, c, d, source in rows:
        formats = (operands.split("x") if "x" in operands else operands.split(",")) * 2
        left, right = array_of(a.split(), DTYPE[formats[0]]), array_of(b.split(), DTYPE[formats[1]])
        start = array_of([c], SUMS[sums])
        ours = fp16lab.matmul(left[None, :], right[:, None], model, sums, sums, c=start, threads=1)
        assert ours.dtype == SUMS[sums] and ours.shape == (1, 1)
        assert hexadecimal(ours.view(f"u{ours.itemsize}")[0]) == d, f"{name} on {model}: {source}"
        dot = fp16lab.explain(left, right, start, model, sums)
        assert f"{dot.word:0{2 * start.itemsize}x}" == d, f"{name} explained on {model}: {source}"


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="no tests/golden: this is not a checkout")
def test_vectors_with_block_scales():
    rows = golden_rows(11)
    assert len(rows) > 100
    for name, model, operands, scale, a, b, a_scales, b_scales, c, d, source in rows:
        formats = operands.split(",") * 2
        left, right = array_of(a.split(), DTYPE[formats[0]]), array_of(b.split(), DTYPE[formats[1]])
        of_a, of_b = (array_of(codes.split(), SCALE[scale]) for codes in (a_scales, b_scales))
        start = array_of([c], SUMS["f32"])
        ours = fp16lab.matmul(left, right, model, c=start[0], scale_a=of_a, scale_b=of_b)
        assert hexadecimal(np.atleast_1d(ours).view("u4")) == d, f"{name} on {model}: {source}"
        dot = fp16lab.explain(left, right, start, model, scale_a=of_a, scale_b=of_b)
        assert f"{dot.word:08x}" == d, f"{name} explained on {model}: {source}"


def test_block_scales_of_matrices_in_a_batch():
    random = np.random.default_rng(4)
    a = random.integers(0, 16, (2, 5, 128), np.uint8).view(DTYPE["e2m1"])
    b = random.integers(0, 16, (128, 7), np.uint8).view(DTYPE["e2m1"])
    of_a = random.integers(0x30, 0x40, (2, 5, 8), np.uint8).view(SCALE["ue4m3"])
    of_b = random.integers(0x30, 0x40, (7, 8), np.uint8).T.view(SCALE["ue4m3"])
    ours = fp16lab.matmul(a, b, "blackwell-mxf4nvf4", scale_a=of_a, scale_b=of_b, threads=2)
    assert ours.dtype == np.float32 and ours.shape == (2, 5, 7)
    one = fp16lab.matmul(a[1, 3], b[:, 2], "blackwell-mxf4nvf4", scale_a=of_a[1, 3], scale_b=of_b[:, 2])
    assert ours[1, 3, 2] == one
    wide = np.repeat(of_a.astype(np.float64), 16, -1) * a, np.repeat(of_b.astype(np.float64), 16, 0) * b
    np.testing.assert_allclose(ours, wide[0] @ wide[1], rtol=1e-6, atol=1e-4)
    eight = a.astype(np.float32).astype(DTYPE["e4m3"]), b.astype(np.float32).astype(DTYPE["e4m3"])
    codes = np.full((5, 4), 128, np.uint8), np.full((4, 7), 126, np.uint8)  # 2 and 1/2, of the one format
    scaled = fp16lab.matmul(eight[0][0], eight[1], "blackwell-mxf8f6f4", scale_a=codes[0], scale_b=codes[1])
    np.testing.assert_array_equal(scaled, fp16lab.matmul(eight[0][0], eight[1], "blackwell-tcgen05"))


@pytest.mark.parametrize(
    "model,scales,line",
    [
        ("blackwell-mxf8f6f4", {}, "needs block scales of a and of b: e8m0 for 32 elements"),
        ("blackwell-mxf8f6f4", {"scale_a": (2, 2)}, "scale_a and scale_b are needed together"),
        ("blackwell-mxf8f6f4", {"scale_a": (2, 3), "scale_b": (3, 2)}, "2 along K are needed"),
        ("blackwell-mxf8f6f4", {"scale_a": (3, 2), "scale_b": (2, 2)}, "scale_a has shape (3, 2); (2, 2) is needed"),
        ("blackwell-mxf4nvf4", {"scale_a": (2, 4), "scale_b": (4, 2)}, "e8m0 and ue4m3 are possible here"),
        ("blackwell-tcgen05", {"scale_a": (2, 2), "scale_b": (2, 2)}, "takes no block scales; blackwell-mx"),
    ],
)
def test_wrong_block_scales_are_one_clear_line(model, scales, line):
    a, b = np.zeros((2, 64), DTYPE["e2m1"]), np.zeros((64, 2), DTYPE["e2m1"])
    arrays = {name: np.full(shape, 127, np.uint8) for name, shape in scales.items()}
    with pytest.raises(ValueError) as error:
        fp16lab.matmul(a, b, model, **arrays)
    assert line in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(TypeError, match="scale_a has dtype float32; ml_dtypes' float8_e8m0fnu"):
        fp16lab.matmul(a, b, "blackwell-mxf8f6f4", scale_a=np.ones((2, 2), "f4"), scale_b=np.ones((2, 2), "f4"))


def kinds() -> list[tuple[str, str, str, str]]:
    """Every model without block scales with pairs of operands and accumulators that it has."""
    found = []
    for model, rows in fp16lab.models().items():
        for row in rows:
            if row["scales"] or row["accumulator"] == "f64":
                continue
            pairs = [(f, f) for f in row["operands"]]
            if {"e4m3", "e5m2"} <= set(row["operands"]):
                pairs += [("e4m3", "e5m2"), ("e5m2", "e4m3")]
            if {"e4m3", "e2m1"} <= set(row["operands"]):
                pairs += [("e4m3", "e2m1"), ("e3m2", "e2m3")]
            found += [(model, a, b, row["accumulator"]) for a, b in pairs]
    return found


def adversarial(random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Any patterns: subnormals, cancellation, now and then an infinity or NaN."""
    bits = {DTYPE["e2m1"]: 4, DTYPE["e2m3"]: 6, DTYPE["e3m2"]: 6}.get(dtype, 8 * dtype.itemsize)
    words = random.integers(0, 1 << min(bits, 32), shape, np.uint64).astype(
        f"u{dtype.itemsize}"
    )
    x = words.view(dtype)
    with np.errstate(all="ignore"):
        small = random.standard_normal(shape).astype(dtype)
        odd = ~np.isfinite(x.astype(np.float32)) & (random.random(shape) < 0.98)
    return np.where(odd | (random.random(shape) < 0.5), small, x)


def test_every_model_is_there():
    rows = json.loads(command("list", "tensor_cores", "--json"))["tensor_cores"]
    assert list(fp16lab.models()) == list(dict.fromkeys(row["name"] for row in rows))
    assert len(kinds()) > 40


@pytest.mark.parametrize("model,a_format,b_format,accumulator", kinds())
def test_bits_are_those_of_the_command_line(model, a_format, b_format, accumulator):
    random = np.random.default_rng(hash_of(model, a_format, b_format, accumulator))
    m, n, k = 7, 19, 45
    a = adversarial(random, (m, k), DTYPE[a_format])
    b = adversarial(random, (k, n), DTYPE[b_format])
    c = adversarial(random, (m, n), SUMS[accumulator])
    lines = [
        "\t".join(
            hexadecimal(np.ascontiguousarray(x).view(f"u{x.itemsize}"))
            for x in (a[i], b[:, j], c[i, j : j + 1])
        )
        for i, j in itertools.product(range(m), range(n))
    ]
    answers = filtered(
        lines, "mma", "--model", model, "--in", a_format, "--in-b", b_format, "--acc", accumulator
    )
    expected = array_of([line.split("\t")[3] for line in answers], SUMS[accumulator]).reshape(m, n)
    word = f"u{c.itemsize}"
    for threads in (1, 2, 5):
        ours = fp16lab.matmul(a, b, model, accumulator, accumulator, c=c, threads=threads)
        np.testing.assert_array_equal(ours.view(word), expected.view(word))


def hash_of(*names: str) -> int:
    return sum(ord(letter) * (i + 1) for i, letter in enumerate("".join(names)))


def test_transposed_strided_and_batched_operands_have_the_bits_of_dense_ones():
    random = np.random.default_rng(6)
    a = random.standard_normal((3, 1, 20, 33)).astype(np.float16)
    b = random.standard_normal((4, 33, 17)).astype(np.float16)
    dense = np.stack(
        [
            [fp16lab.matmul(a[i, 0].copy(), b[j].copy(), "volta", out="f32") for j in range(4)]
            for i in range(3)
        ]
    )
    assert dense.shape == (3, 4, 20, 17)

    def same(left, right):
        for threads in (1, 3):
            ours = fp16lab.matmul(left, right, "volta", out="f32", threads=threads)
            np.testing.assert_array_equal(ours.view("u4"), dense.view("u4"))

    same(a, b)
    same(a.swapaxes(-1, -2).copy().swapaxes(-1, -2), b.swapaxes(-1, -2).copy().swapaxes(-1, -2))
    wide = np.zeros((3, 1, 40, 99), np.float16)
    wide[:, :, ::2, ::3] = a
    same(wide[:, :, ::2, ::3], b)
    same(a[:, :, ::-1, ::-1].copy()[:, :, ::-1, ::-1], b[::-1, :, ::-1].copy()[::-1, :, ::-1])
    same(np.broadcast_to(a, (3, 4, 20, 33)), np.broadcast_to(b, (3, 4, 33, 17)))
    vector = fp16lab.matmul(a[0, 0, 5], b[2], "volta", out="f32")
    np.testing.assert_array_equal(vector, dense[0, 2, 5])
    np.testing.assert_array_equal(fp16lab.matmul(a[0, 0], b[2, :, 3], "volta", out="f32"), dense[0, 2, :, 3])
    assert fp16lab.matmul(a[0, 0, 5], b[2, :, 3], "volta", out="f32") == dense[0, 2, 5, 3]


def test_a_repeated_row_or_column_of_stride_zero():
    random = np.random.default_rng(7)
    row, b = random.standard_normal(24).astype(np.float16), random.standard_normal((24, 9)).astype(np.float16)
    repeated = np.broadcast_to(row, (6, 24))
    np.testing.assert_array_equal(fp16lab.matmul(repeated, b), fp16lab.matmul(repeated.copy(), b))
    column = np.broadcast_to(row[:, None], (24, 5))
    np.testing.assert_array_equal(
        fp16lab.matmul(repeated, column), fp16lab.matmul(repeated.copy(), column.copy())
    )


@pytest.mark.parametrize("out", ["f32", "f16", "bf16", "e4m3", "e5m2"])
@pytest.mark.parametrize("accumulator", ["f32", "f16"])
def test_out_is_the_accumulator_rounded_once(out, accumulator):
    random = np.random.default_rng(8)
    a, b = (random.standard_normal(s).astype(np.float16) for s in ((30, 64), (64, 30)))
    sums = fp16lab.matmul(a, b, "ampere", accumulator, accumulator)
    ours = fp16lab.matmul(a, b, "ampere", accumulator, out)
    dtype = {**DTYPE, "f32": np.dtype(np.float32)}[out]
    assert ours.dtype == dtype
    np.testing.assert_array_equal(ours, sums.astype(dtype))


def test_the_default_of_out_is_the_operands_dtype():
    for format, dtype in DTYPE.items():
        x = np.ones((3, 3)).astype(dtype)
        model = "blackwell-tcgen05" if dtype.itemsize == 1 else "hopper"
        assert fp16lab.matmul(x, x, model).dtype == (np.float32 if dtype.itemsize == 1 else dtype), format


def test_tf32_ignores_the_low_bits_of_its_register():
    random = np.random.default_rng(9)
    a, b = (random.standard_normal(s).astype(np.float32) for s in ((8, 32), (32, 8)))
    cut = (a.view("u4") & np.uint32(0xFFFFE000)).view(np.float32)
    np.testing.assert_array_equal(fp16lab.matmul(a, b, "ampere"), fp16lab.matmul(cut, b, "ampere"))
    assert (fp16lab.matmul(a, b, "ampere") != a @ b).any()


def test_zero_sizes():
    for m, k, n in itertools.product((0, 2), (0, 3), (0, 4)):
        result = fp16lab.matmul(np.ones((m, k), np.float16), np.ones((k, n), np.float16), c=np.float16(1.5))
        assert result.shape == (m, n) and (result == 1.5 + k).all()
    assert fp16lab.matmul(np.ones((0, 2, 3), np.float16), np.ones((3, 4), np.float16)).shape == (0, 2, 4)
    assert not np.signbit(fp16lab.matmul(np.ones((1, 0), np.float16), np.ones((0, 1), np.float16)))[0, 0]


def test_c_broadcasts_and_must_be_numbers_of_the_accumulator():
    a = np.eye(4, dtype=np.float16)
    bias = np.float16([1, 2, 3, 4])
    np.testing.assert_array_equal(fp16lab.matmul(a, a, c=bias), np.eye(4) + bias)
    np.testing.assert_array_equal(fp16lab.matmul(a, a, c=[1.0, 2.0, 3.0, 4.0]), np.eye(4) + bias)
    np.testing.assert_array_equal(fp16lab.matmul(a, a, c=bias.astype(ml_dtypes.bfloat16)), np.eye(4) + bias)
    np.testing.assert_array_equal(
        fp16lab.matmul(a, a, accumulator="f16", c=bias.astype(np.float64)), np.eye(4) + bias
    )
    assert np.isnan(fp16lab.matmul(a, a, c=float("nan"))).all()
    for c, accumulator in ((0.1, "f32"), (np.float32(0.1), "f16"), (2.0**-150, "f32")):
        with pytest.raises(
            ValueError, match=f"c has numbers that are none of {accumulator}, which accumulates"
        ):
            fp16lab.matmul(a, a, accumulator=accumulator, c=c)
    with pytest.raises(ValueError, match=r"c is \(3,\) and does not broadcast to the result's \(4, 4\)"):
        fp16lab.matmul(a, a, c=np.float16([1, 2, 3]))


@pytest.mark.parametrize(
    "a,b,arguments,line",
    [
        ((2, 3), (4, 5), {}, "a is (2, 3) and b is (4, 5): 3 columns of a need as many rows of b, not 4"),
        ((2, 2, 3), (5, 3, 2), {}, "the batches (2,) of a and (5,) of b do not broadcast"),
        ((), (3, 2), {}, "a and b need at least one dimension"),
        ((2, 2), (2, 2), {"model": "pascal"}, "volta"),
        ((2, 2), (2, 2), {"accumulator": "bf16"}, 'accumulator is \'bf16\'; "f32" or "f16" is needed'),
        ((2, 2), (2, 2), {"out": "tf32"}, "out is 'tf32'; one of f32, f16, bf16, e4m3, e5m2 is needed"),
        ((2, 2), (2, 2), {"threads": 1.5}, "threads is 1.5; a whole number of at least 1"),
    ],
)
def test_wrong_arguments_are_one_clear_line(a, b, arguments, line):
    with pytest.raises(ValueError) as error:
        fp16lab.matmul(np.ones(a, np.float16), np.ones(b, np.float16), **arguments)
    assert line in str(error.value) and "\n" not in str(error.value)


def test_what_no_model_multiplies_is_refused():
    half, double = np.ones((2, 2), np.float16), np.ones((2, 2))
    with pytest.raises(TypeError, match="a is float64, which no model multiplies; a.astype"):
        fp16lab.matmul(double, half)
    with pytest.raises(ValueError, match=r"no tf32 .* float32 arrays are TF32; .astype\(numpy.float16\)"):
        fp16lab.matmul(np.float32(half), np.float32(half), "v100")
    with pytest.raises(ValueError, match="volta"):
        fp16lab.matmul(half.astype(ml_dtypes.bfloat16), half.astype(ml_dtypes.bfloat16), "volta")
    with pytest.raises(ValueError, match="a is f16 and b is bf16; a tensor core multiplies one format"):
        fp16lab.matmul(half, half.astype(ml_dtypes.bfloat16), "ampere")


def test_an_explanation_adds_up():
    random = np.random.default_rng(10)
    for model, accumulator, operands in (
        ("volta", "f32", np.float16),
        ("H100", "f32", np.float16),
        ("ampere", "f16", np.float16),
        ("a100", "f32", np.float32),  # TF32, which cuts its operands
    ):
        a, b = (random.standard_normal(37).astype(operands) for _ in range(2))
        c = np.float16(0.75)
        dot = fp16lab.explain(a, b, c, model, accumulator)
        exact = Fraction(0.75) + sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a, b))
        value = array_of([f"{dot.word:x}"], SUMS[accumulator])[0]
        assert value == fp16lab.matmul(a, b, model, accumulator, accumulator, c=c)
        assert dot.exact == exact and dot.result == Fraction(float(value)) and dot.error == dot.result - exact
        assert dot.error_in_ulp == dot.error / Fraction(2) ** dot.ulp_exponent
        # error = what cutting the operands did + what the steps' roundings did - what their alignments dropped
        roundings = sum(step.result - step.sum for step in dot.steps)
        dropped = sum(term.dropped for step in dot.steps for term in step.terms)
        assert dot.error == dot.operand_error + roundings - dropped
        assert (dot.operand_error != 0) == (operands is np.float32)
        for step in dot.steps:
            assert sum(term.kept for term in step.terms) == step.sum
            for term in step.terms:
                assert term.value == term.kept + term.dropped
        assert [t.k for s in dot.steps for t in s.terms if t.source == "product"] == list(range(37))


def test_an_explanation_of_infinities_and_its_errors():
    half = np.float16
    dot = fp16lab.explain(half([1, np.inf]), half([1, 1]), 0.0)
    assert dot.result == float("inf") and dot.error is None and dot.error_in_ulp is None
    with pytest.raises(ValueError, match="a_row has 2 elements and b_col has 1; they must agree"):
        fp16lab.explain(half([1, 2]), half([1]))
    with pytest.raises(ValueError, match=r"a_row has shape \(1, 1\); one dimension is needed"):
        fp16lab.explain(half([[1]]), half([1]))


def test_a_plan_begins_chains_again_and_refuses_what_is_not_known():
    random = np.random.default_rng(3)
    a = random.standard_normal((5, 700)).astype(ml_dtypes.bfloat16)
    b = random.standard_normal((700, 6)).astype(ml_dtypes.bfloat16)
    model = {"model": "avx512_bf16", "out": "f32"}
    parts = [fp16lab.matmul(a[:, k : k + 512], b[k : k + 512], **model) for k in (0, 512)]
    assert np.array_equal(fp16lab.matmul(a, b, plan="onednn", **model), parts[0] + parts[1])
    assert not np.array_equal(fp16lab.matmul(a, b, **model), parts[0] + parts[1])
    with pytest.raises(ValueError, match="plan 'onednn': it takes the row avx512_bf16, not hopper"):
        fp16lab.matmul(a, b, plan="onednn")
    with pytest.raises(ValueError, match="where c enters is not known"):
        fp16lab.matmul(a, b, c=0.0, plan="onednn", **model)
    with pytest.raises(ValueError, match="unknown plan 'mkl': known are instruction, onednn, cublaslt-12.8"):
        fp16lab.matmul(a, b, plan="mkl", **model)
    with pytest.raises(TypeError, match="plan is 3; a name of plans"):
        fp16lab.matmul(a, b, plan=3, **model)
    with pytest.raises(ValueError, match="plan 'onednn' has no rule for matrices of a batch times a vector"):
        fp16lab.matmul(np.stack([a, a]), b[:, 0], plan="onednn", **model)
    transposed = np.asfortranarray(random.standard_normal((4, 2048)).astype(ml_dtypes.bfloat16))
    with pytest.raises(ValueError, match="in 3 threads is not known"):
        fp16lab.matmul(transposed, b[:3].repeat(683, 0)[:2048], plan=fp16lab.Plan("onednn", threads=3), **model)
    assert set(fp16lab.plans()) == {"instruction", "onednn", "cublaslt-12.8", "split-k"}


def test_two_parts_of_fp8_are_joined_as_cublaslt_joins_them():
    random = np.random.default_rng(4)
    a, b = (random.standard_normal(s).astype(ml_dtypes.float8_e4m3fn) for s in ((4, 512), (512, 3)))
    part = [fp16lab.matmul(a[:, k : k + 128], b[k : k + 128], "hopper-wgmma", out="f32") for k in range(0, 512, 128)]
    split = fp16lab.Plan("cublaslt-12.8", parts=2)
    joined = (part[0] + part[1]) + (part[2] + part[3])
    assert np.array_equal(fp16lab.matmul(a, b, "hopper-wgmma", out="f32", plan=split), joined)
    with pytest.raises(ValueError, match="parts were seen joined serially, on Ada also pairwise, not by pairwise on Hopper"):
        fp16lab.matmul(a, b, "hopper-wgmma", plan=fp16lab.Plan("cublaslt-12.8", parts=2, join="pairwise"))
    with pytest.raises(ValueError, match="not by halves"):
        fp16lab.matmul(a, b, "ada", plan=fp16lab.Plan("cublaslt-12.8", parts=4, join="halves"))
    with pytest.raises(ValueError, match="join is 'tree'; one of serial, pairwise, "):
        fp16lab.matmul(a, b, "ada", plan=fp16lab.Plan("cublaslt-12.8", join="tree"))


def test_partial_sums_of_a_split_k_are_rounded_before_they_are_added():
    # 2057 and 1 + 2**-11: FP16 rounds them to 2056 and 1, BF16 to 2064 and 1.
    a, b = np.float16([[2048, 9, 0, 0, 1, 2.0**-11, 0, 0]]), np.ones((8, 1), np.float16)
    for partials, expected in (("f32", 2058 + 2.0**-11), ("f16", 2057), ("bf16", 2065)):
        plan = fp16lab.Plan("split-k", parts=2, partials=partials)
        assert float(fp16lab.matmul(a, b, "volta", out="f32", plan=plan)[0, 0]) == expected
    with pytest.raises(ValueError, match="plan 'split-k': where 3 parts of K = 8 end is not known"):
        fp16lab.matmul(a, b, plan=fp16lab.Plan("split-k", parts=3))
    with pytest.raises(ValueError, match="partials is 'e4m3'; one of f32, f16, bf16 is needed"):
        fp16lab.matmul(a, b, plan=fp16lab.Plan("split-k", partials="e4m3"))


@pytest.mark.parametrize(
    "row,parts,join,fast,digest",
    [
        ("hopper-wgmma", 1, "serial", False, "16c83cb0518fef05"),
        ("hopper-wgmma", 5, "serial", False, "6e78aeb125285b96"),
        ("hopper-wgmma", 1, "serial", True, "575b88ec5eada5ae"),
        ("hopper-wgmma", 5, "serial", True, "2183e8c92e9d96fb"),
        ("ada", 1, "serial", False, "7439b676a81b5bfe"),
        ("ada", 5, "serial", False, "539da37129e6936b"),
        ("ada", 5, "pairwise", False, "e7a1bb121cf33bc7"),
        ("ada", 1, "serial", True, "5d148922080e86bc"),
        ("ada", 5, "serial", True, "31e89a471cc5960e"),
        ("ada", 5, "pairwise", True, "8ff38d51b0f88a37"),
    ],
)
def test_the_sums_of_cublaslt_are_those_that_mmaemu_gives(row, parts, join, fast, digest):
    """mmaemu 0.1.0 (PyPI), whose rules are recordings of cuBLASLt 12.8.3.14: FP32 sums of 4 x 8 x 900 in E4M3."""
    random = np.random.default_rng(5)
    a, b = random.standard_normal((4, 900)) * 40, random.standard_normal((8, 900)) * 2
    a[:, 450:] = -a[:, :450] * (1 + random.integers(0, 2, (4, 450)) / 16)
    b[:, 450:] = b[:, :450]
    fade = 0.125 ** (np.arange(900) // 64 % 5)  # tiles so far apart that their sums round
    a, b = a * fade, b * fade
    a, b = a.clip(-448, 448).astype(ml_dtypes.float8_e4m3fn), b.astype(ml_dtypes.float8_e4m3fn)
    plan = fp16lab.Plan("cublaslt-12.8", parts, join, fast)
    sums = fp16lab.matmul(a, b.T, row, out="f32", plan=plan)
    assert hashlib.sha256(sums.tobytes()).hexdigest()[:16] == digest
