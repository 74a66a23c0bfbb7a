"""fp16lab.round: the bits of the command line, of numpy and ml_dtypes, and of exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from support import MODES, command_rounds, float32_patterns

import fp16lab

ml_dtypes = pytest.importorskip("ml_dtypes", reason="BF16 and FP8 arrays of numpy are ml_dtypes'")
DTYPE = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e8m0": ml_dtypes.float8_e8m0fnu,
    "f32": np.float32,
    "f64": np.float64,
}


def sources() -> list[tuple[str, np.ndarray]]:
    """All patterns of small formats; of FP32 every upper half; of FP64 the same and their neighbours."""
    wide = float32_patterns()
    with np.errstate(invalid="ignore"):  # signalling NaNs
        doubles = wide.view(np.float32).astype(np.float64).view(np.uint64)
    doubles += np.resize(np.array([0, 1, 2**64 - 1], np.uint64), doubles.size)
    return [
        ("f16", np.arange(1 << 16, dtype=np.uint16)),
        ("bf16", np.arange(1 << 16, dtype=np.uint16)),
        *((name, np.arange(256, dtype=np.uint8)) for name in ("e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0")),
        *((name, np.arange(64, dtype=np.uint8)) for name in ("e3m2", "e2m3")),
        ("e2m1", np.arange(16, dtype=np.uint8)),
        ("f32", wide),
        ("f64", doubles),
    ]


@pytest.mark.parametrize("source,words", sources(), ids=[name for name, _ in sources()])
@pytest.mark.parametrize("mode", MODES)
def test_bits_are_those_of_the_command_line(source, words, mode):
    x = words.view(DTYPE[source])
    for target in ("f16", "bf16", "tf32", "e4m3", "e5m2", "e4m3fnuz", "e3m2", "e2m1", "e8m0", "ue4m3"):
        if target == source:
            continue  # the command has no such conversion
        expected = command_rounds(words, source, target, mode)
        codes = fp16lab.round(x, target, mode, out="bits")
        np.testing.assert_array_equal(codes, expected, f"{source} to {target}")


@pytest.mark.parametrize("target", [name for name in DTYPE if name not in ("f32", "f64")])
def test_nearest_even_is_that_of_numpy_and_ml_dtypes(target):
    x = float32_patterns().view(np.float32)
    if target in ("e3m2", "e2m3", "e2m1"):  # without NaN ml_dtypes stores a zero, CUDA and we the greatest number
        x = x[~np.isnan(x)]
    if target == "e8m0":  # ml_dtypes stores NaN for zeros and negative numbers, CUDA and we the magnitude's scale
        # And it takes FP32's subnormals, all above 2^-127 of them, to 2^-126 (0.6.0).
        x = x[(x >= 2.0**-126) | np.isnan(x)]
    with np.errstate(all="ignore"):
        theirs = x.astype(DTYPE[target])
    ours = fp16lab.round(x, target, out="bits").view(DTYPE[target])
    nan = np.isnan(theirs)
    np.testing.assert_array_equal(nan, np.isnan(ours))
    np.testing.assert_array_equal(
        ours[~nan].view(f"u{ours.itemsize}"), theirs[~nan].view(f"u{ours.itemsize}")
    )


GFLOAT = {
    "e4m3": "ocp_e4m3",
    "e5m2": "ocp_e5m2",
    "e3m2": "ocp_e3m2",
    "e2m3": "ocp_e2m3",
    "e2m1": "ocp_e2m1",
    "e8m0": "ocp_e8m0",
}


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("target", GFLOAT)
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_is_that_of_gfloat(target, mode, saturate):
    """gfloat computes with floats of Python, value by value: all numbers of the format, the middles between
    them, and their neighbours."""
    gfloat = pytest.importorskip("gfloat")
    formats = pytest.importorskip("gfloat.formats")
    info = getattr(formats, f"format_info_{GFLOAT[target]}")
    theirs = {
        "nearest_even": gfloat.RoundMode.TiesToEven,
        "nearest_away": gfloat.RoundMode.TiesToAway,
        "toward_zero": gfloat.RoundMode.TowardZero,
        "upward": gfloat.RoundMode.TowardPositive,
        "downward": gfloat.RoundMode.TowardNegative,
    }[mode]
    values = np.array([gfloat.decode_float(info, code).fval for code in range(2**info.bits)])
    values = np.unique(np.abs(values[np.isfinite(values)]))
    middles = (values[1:] + values[:-1]) / 2
    x = np.concatenate([values, middles, [values[-1] * 1.2, values[-1] * 1.3, values[-1] * 4]])
    # Neighbours of FP32: with those of FP64 gfloat's own sums round.
    x = np.float32(x)
    x = np.float64(np.concatenate([np.nextafter(x, np.float32(0)), x, np.nextafter(x, np.float32(np.inf))]))
    if target == "e8m0":  # no zero; a tie goes to the larger number in IEEE 754, to the even code in gfloat
        x = x[(x >= values[0]) & ~((mode == "nearest_even") & np.isin(x, middles))]
    else:
        x = np.concatenate([x, -x])
    ours = fp16lab.round(x, target, mode, saturate=saturate)
    for given, result in zip(x.tolist(), ours.tolist()):
        try:
            expected = gfloat.round_float(info, given, theirs, sat=saturate)
        except ValueError:  # it refuses what a format without NaN and infinity cannot say
            expected = np.sign(given) * values[-1]
        assert result == expected or (np.isnan(result) and np.isnan(expected)), (given, result, expected)


@pytest.mark.parametrize("source", DTYPE)
@pytest.mark.parametrize("target", ["f16", "bf16", "tf32", "e4m3", "e5m2", "e2m1", (5, 11), (4, 9), (8, 24)])
def test_values_are_the_codes_in_the_dtype_of_the_input(source, target):
    words = dict(sources())[source][::7]
    x = words.view(DTYPE[source])
    try:
        values = fp16lab.round(x, target, "toward_zero")
    except ValueError as error:
        assert "does not hold every number of" in str(error)
        return
    assert values.dtype == x.dtype
    own = {(5, 11): "f16", (4, 9): None, (8, 24): "f32"}.get(target, target)
    if own is None or own == "tf32":  # no dtype: the same values again, from their codes
        np.testing.assert_array_equal(
            fp16lab.round(values, target, "upward").view(words.dtype), values.view(words.dtype)
        )
        return
    codes = fp16lab.round(x, target, "toward_zero", out="bits").view(DTYPE[own])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(codes.astype(np.float64), values.astype(np.float64))


@pytest.mark.parametrize(
    "name,pair", [("f16", (5, 11)), ("bf16", (8, 8)), ("tf32", (8, 11)), ("e5m2", (5, 3))]
)
@pytest.mark.parametrize("mode", fp16lab.rounding.MODES)
def test_own_formats_have_the_bits_of_the_named_ones(name, pair, mode):
    seed = 5 if mode == "stochastic" else None
    for dtype in (np.float32, np.float64):
        with np.errstate(invalid="ignore"):  # signalling NaNs
            x = float32_patterns().view(np.float32).astype(dtype)
        own = fp16lab.round(x, pair, mode, seed=seed, out="bits")
        np.testing.assert_array_equal(own, fp16lab.round(x, name, mode, seed=seed, out="bits"))
    named = fp16lab.round(x, name, mode, seed=seed)
    np.testing.assert_array_equal(fp16lab.round(x, pair, mode, seed=seed).view("u8"), named.view("u8"))


def exactly(x: float, exponent_bits: int, precision: int, mode: str, random: int = 0) -> Fraction | float:
    """Rounding by fractions alone; random: 32 bits."""
    value = Fraction(x)
    magnitude = abs(value)
    smallest_normal = 2 - (1 << (exponent_bits - 1))
    exponent = smallest_normal
    while Fraction(2) ** (exponent + 1) <= magnitude:
        exponent += 1
    quantum = Fraction(2) ** (exponent - precision + 1)
    kept, rest = divmod(magnitude / quantum, 1)
    up = {
        "nearest_even": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and kept % 2 == 1),
        "nearest_away": rest >= Fraction(1, 2),
        "toward_zero": False,
        "upward": rest > 0 and value > 0,
        "downward": rest > 0 and value < 0,
        "stochastic": int(rest * 2**32) + random >= 2**32,
    }[mode]
    result = (kept + up) * quantum
    greatest = (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** ((1 << (exponent_bits - 1)) - 1)
    if result > greatest:
        to_infinity = {"toward_zero": False, "upward": value > 0, "downward": value < 0}.get(mode, True)
        result = float("inf") if to_infinity else greatest
    return -result if value < 0 else result


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pair", [(3, 2), (4, 9), (6, 10), (5, 11), (8, 24)])
def test_own_formats_round_as_fractions_do(pair, mode):
    random = np.random.default_rng(3)
    x = random.standard_normal(400) * 2.0 ** random.integers(-30, 30, 400)
    assert fp16lab.round(x, pair, mode).tolist() == [float(exactly(v, *pair, mode)) for v in x.tolist()]


def philox_halves(seed: int, count: int) -> list[int]:
    """Philox4x32-10 (Salmon et al., SC 2011), words in order, of each the lower half first."""
    halves = []
    for block in range(count // 8 + 1):
        counter, key = [block, 0, 0, 0], [seed & 0xFFFFFFFF, seed >> 32]
        for _ in range(10):
            one, two = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
            counter = [
                (two >> 32) ^ counter[1] ^ key[0],
                two & 0xFFFFFFFF,
                (one >> 32) ^ counter[3] ^ key[1],
                one & 0xFFFFFFFF,
            ]
            key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
        for word in counter:
            halves += [word & 0xFFFF, word >> 16]
    return halves[:count]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "format,pair", [("f16", (5, 11)), ("bf16", (8, 8)), ("e5m2", (5, 3)), ((6, 10), (6, 10))]
)
def test_stochastic_rounding_takes_the_stream_of_the_seed(format, pair, dtype):
    seed = 0x123456789ABCDEF
    random = np.random.default_rng(4)
    x = (random.standard_normal(3000) * 2.0 ** random.integers(-20, 14, 3000)).astype(dtype)
    expected = [
        float(exactly(v, *pair, "stochastic", half << 16))
        for v, half in zip(x.tolist(), philox_halves(seed, x.size))
    ]
    ours = fp16lab.round(x, format, "stochastic", seed=seed)
    assert ours.tolist() == expected
    np.testing.assert_array_equal(
        fp16lab.round(x.reshape(30, 100), format, "stochastic", seed=seed).ravel(), ours
    )
    np.testing.assert_array_equal(
        fp16lab.round(x.reshape(100, 30).T, format, "stochastic", seed=seed),
        fp16lab.round(x.reshape(100, 30).T.copy(), format, "stochastic", seed=seed),
    )
    assert fp16lab.round(x, format, "stochastic", seed=seed + 1).tolist() != expected


def test_saturation_keeps_fp8_finite():
    x = np.float32([1e9, -1e9, np.inf, 448, 500, np.nan])
    assert np.isnan(fp16lab.round(x, "e4m3")).tolist() == [True, True, True, False, True, True]
    assert fp16lab.round(x, "e4m3", saturate=True)[:5].tolist() == [448, -448, 448, 448, 448]


def test_out_may_be_an_array():
    x = float32_patterns().view(np.float32)
    codes = fp16lab.round(x, "f16", out="bits")
    for out in (np.empty(x.shape, np.uint16), np.empty(x.shape, np.float16)):
        assert fp16lab.round(x, "f16", out=out) is out
        np.testing.assert_array_equal(out.view(np.uint16), codes)
    values = np.empty_like(x)
    assert fp16lab.round(x, "f16", out=values) is values
    np.testing.assert_array_equal(values.view("u4"), fp16lab.round(x, "f16").view("u4"))


@pytest.mark.parametrize(
    "arguments,line",
    [
        (
            dict(format="f17"),
            "there is no format 'f17'; f16, bf16, tf32, f32, f64, e4m3, e5m2, e3m2, e2m3, e2m1, e4m3fnuz, e5m2fnuz,"
            " e8m0, ue4m3 and (exponent bits,",
        ),
        (dict(format=(1, 5)), "format is (1, 5); 2 to 15 exponent bits"),
        (dict(format=(5,)), "format is (5,); a name or (exponent bits, precision) is needed"),
        (dict(format="f16", mode="even"), "mode is 'even'; one of nearest_even, "),
        (dict(format="f16", mode="stochastic"), 'mode="stochastic" needs a seed'),
        (dict(format="f16", seed=1), "seed goes with mode=\"stochastic\", not with 'nearest_even'"),
        (
            dict(format="f16", mode="stochastic", seed=-1),
            "seed is -1; a whole number from 0 to 2**64 - 1 is needed",
        ),
        (
            dict(format="f16", mode="stochastic", seed="one"),
            "seed is 'one'; a whole number from 0 to 2**64 - 1",
        ),
        (dict(format="f16", out="codes"), "out is 'codes'; None, \"bits\" or a numpy array is needed"),
        (dict(format="f16", out=np.empty(3, np.uint16)), "out has shape (3,), x has (4,); they must agree"),
        (
            dict(format="f16", out=np.empty(4, np.int64)),
            "out has dtype int64; x's own or, for codes, uint16 is needed",
        ),
        (dict(format="f16", out=np.empty(8, np.uint16)[::2]), "out must be C-contiguous and writable"),
        (dict(format="f16", threads=0), "threads is 0; a whole number of at least 1"),
        (
            dict(format=(11, 53)),
            "an array of f32 does not hold every number of (11, 53): give x in a wider dtype",
        ),
    ],
)
def test_wrong_arguments_are_one_clear_line(arguments, line):
    with pytest.raises(ValueError) as error:
        fp16lab.round(np.ones(4, np.float32), **arguments)
    assert line in str(error.value) and "\n" not in str(error.value)
