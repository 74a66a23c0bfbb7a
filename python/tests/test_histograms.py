"""fp16lab.histogram: counts of numpy's frexp, and the zones and suggestions of `fp16lab hist`."""

from __future__ import annotations

import copy
import json
import pickle
import sys

import numpy as np
import pytest
from support import float32_patterns

import fp16lab
from fp16lab import program


def counted(x: np.ndarray) -> dict[int, int]:
    """By exponent e of (2**e, 2**(e+1)], finite values that are not zero."""
    fraction, exponent = np.frexp(np.abs(x[np.isfinite(x) & (x != 0)].astype(np.float64)))
    bins = np.where(fraction == 0.5, exponent - 2, exponent - 1)
    return dict(zip(*(part.tolist() for part in np.unique(bins, return_counts=True))))


@pytest.mark.parametrize("name", ["float16", "float32", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_counts_are_those_of_frexp(name):
    if name in ("float16", "float32"):
        dtype = np.dtype(name)
    else:
        dtype = np.dtype(getattr(pytest.importorskip("ml_dtypes"), name))
    words = (
        float32_patterns()
        if dtype.itemsize == 4
        else np.arange(1 << 8 * dtype.itemsize).astype(f"u{dtype.itemsize}")
    )
    x = words.view(dtype)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float32)
    h = fp16lab.histogram(x)
    assert {i - 150: n for i, n in enumerate(h.bins.tolist()) if n} == counted(wide)
    assert (h.zero, h.infinite, h.nan) == (np.sum(wide == 0), np.sum(np.isinf(wide)), np.sum(np.isnan(wide)))
    assert h.total == x.size
    magnitudes = np.abs(wide[np.isfinite(wide) & (wide != 0)])
    assert (h.smallest, h.greatest) == (magnitudes.min(), magnitudes.max())
    for threads in (1, 2, 7):
        assert fp16lab.histogram(x, threads) == h


def test_a_gpu_counts_the_same_or_says_in_one_line_that_there_is_none():
    for x, wrong in ((np.zeros(3), "float32, float16 and bfloat16"), (np.ones(3, np.float16), "expected")):
        with pytest.raises(ValueError, match=wrong):
            fp16lab.histogram(x, device="cuda" if x.dtype == np.float64 else "gpu")
    x = float32_patterns().view(np.float32)
    try:
        counts = fp16lab.histogram(x, device="cuda")
    except RuntimeError as error:
        assert "\n" not in str(error)
        pytest.skip(str(error))
    assert counts == fp16lab.histogram(x)


def test_fp64_counts_what_is_beyond_fp32_in_the_outer_bins():
    x = np.array([1e-300, 2.0**-149, 2.0**-149 * 1.5, 1.0, 1e300, 0.0, np.inf, np.nan])
    h = fp16lab.histogram(x)
    assert {i - 150: n for i, n in enumerate(h.bins.tolist()) if n} == {-150: 2, -149: 1, -1: 1, 127: 1}
    assert (h.zero, h.infinite, h.nan, h.total) == (1, 1, 1, 8)


def test_zones_and_the_suggestion_are_those_of_the_command_line(tmp_path):
    random = np.random.default_rng(11)
    x = (random.standard_normal(20000) * 2.0 ** random.integers(-34, 2, 20000)).astype(np.float32)
    np.save(tmp_path / "gradients.npy", x)
    h = fp16lab.histogram(x)
    for format in ("f16", "bf16", "e5m2", "e4m3"):
        for scale in (1.0, 2.0**12):
            answer = json.loads(
                program.run(
                    "hist",
                    tmp_path / "gradients.npy",
                    "--format",
                    format,
                    "--scale",
                    repr(scale),
                    "--json",
                    "--quiet",
                )
            )
            tensor = answer["tensors"][0]
            zones = h.zones(scale, format)
            for zone in ("lost", "subnormal", "normal", "overflow"):
                lower, upper = zones[zone]
                exact = tensor[zone]  # of every value; a bin that an edge cuts leaves bounds
                assert lower <= exact[0] and exact[1] <= upper
                assert zone != "lost" or [lower, upper] == exact
            assert [zones[key] for key in ("zero", "infinite", "nan", "total")] == [
                tensor[key] for key in ("zero", "infinite", "nan", "total")
            ]
        suggestion, theirs = h.suggest_scale(format), answer["suggestion"]
        # Counts are bounds: what fits by them fits by the values.
        assert theirs["least"] <= suggestion.least <= theirs["least"] + 2, (suggestion.reasoning, theirs)
        assert theirs["greatest"] - 1 <= suggestion.greatest <= theirs["greatest"]
        assert suggestion.scale == 2.0**suggestion.suggested


def test_histograms_add_up_and_travel():
    x = np.random.default_rng(12).standard_normal(1000).astype(np.float32)
    whole = fp16lab.histogram(x)
    parts = fp16lab.histogram(x[:300])
    parts += fp16lab.histogram(x[300:])
    assert parts == whole and parts != fp16lab.histogram(x[1:]) and parts != 3
    assert pickle.loads(pickle.dumps(whole)) == whole and copy.deepcopy(whole) == whole
    bins = whole.bins
    bins[:] = 0
    assert whole.bins.sum() == 1000


def test_wrong_arguments_are_one_clear_line():
    h = fp16lab.histogram(np.ones(3))
    for call, line in (
        (lambda: h.zones(scale=0.0), "scale is 0; a finite number above zero is needed"),
        (lambda: h.zones(scale=float("nan")), "a finite number above zero is needed"),
        (lambda: h.zones(format="f17"), "there is no format 'f17'"),
        (lambda: h.suggest_scale("f17"), "there is no format 'f17'"),
        (lambda: h.suggest_scale(recorded_scale=-1.0), "loss scale"),
        (lambda: h.zones("4"), "scale is '4'; a number is needed"),
        (lambda: h.zones(format=16), "format is 16; a name is needed"),
        (lambda: h.suggest_scale(recorded_scale=None), "recorded_scale is None; a number is needed"),
        (lambda: h.plot("4"), "scale is '4'; a number is needed"),
        (lambda: fp16lab.histogram(np.ones(3), threads=0), "threads is 0"),
    ):
        with pytest.raises((TypeError, ValueError)) as error:
            call()
        assert line in str(error.value) and "\n" not in str(error.value)


def test_plot(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    x = np.float32([2.0**-26, 2.0**-26, 2.0**-20, 1.0, 70000.0, 0.0])
    pyplot.figure()  # other tests leave theirs
    axes = fp16lab.histogram(x).plot(scale=2.0)
    heights = {round(bar.get_x() + 0.45 - 0.5): bar.get_height() for bar in axes.patches}
    assert heights == {e + 1: n for e, n in counted(x).items()}  # times 2
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["lost: 2", "subnormal: 1", "normal: 1", "overflow: 1"]
    axes.figure.savefig(tmp_path / "h.png")
    colours = [entry.get_facecolor() for entry in axes.get_legend().get_patches()]
    axes.clear()
    fp16lab.histogram(x[3:4]).plot(axes=axes)  # normal alone; the other zones keep their colours
    assert [entry.get_facecolor() for entry in axes.get_legend().get_patches()] == colours
    assert len(set(colours)) == 4
    pyplot.close(axes.figure)
    with pytest.raises(ValueError, match="there is no format"):
        fp16lab.histogram(x).plot(format="f17")


def test_without_matplotlib_plot_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="^plot needs matplotlib: pip install matplotlib$"):
        fp16lab.histogram(np.ones(3)).plot()
