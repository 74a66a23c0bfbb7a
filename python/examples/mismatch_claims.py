"""What mismatch_causes.py found: claims, whose criteria were fixed before the runs, a table, a figure."""

import json
import math
import os
from pathlib import Path

import fp16lab


def write(path: Path, value) -> None:
    path.with_suffix(".part").write_text(json.dumps(value, indent=1))
    os.replace(path.with_suffix(".part"), path)


class Results:
    """The mean |gap| of each batch, of a network."""

    def __init__(self, path: Path) -> None:
        self.found = json.loads(path.read_text())

    def of(self, pair: str, what: str, key: str = "mean_abs") -> list[float]:
        return [
            each[what][key] if what in ("gap", "twin") else each["causes"][what]["alone"][key]
            for each in self.found[pair]
        ]


def mean(values: list[float]) -> tuple[float, float, float]:
    """And its interval of 95 % over batches, which fewer than three do not bound."""
    middle = sum(values) / len(values)
    if len(values) < 3:
        return middle, -math.inf, math.inf
    low, high = fp16lab.mean_interval(values) or (middle, middle)  # all equal
    return middle, low, high


def typical(values: list[float]) -> tuple[float, float, float]:
    """The geometric mean and its interval; where a value is zero, the mean alone."""
    if not all(values):
        return sum(values) / len(values), -math.inf, math.inf
    middle, low, high = (math.exp(each) for each in mean([math.log(value) for value in values]))
    return middle, low, high


def ratio(over: list[float], under: list[float], low: float, high: float) -> str:
    """Is the geometric mean of paired ratios between low and high? Its interval says so, or cannot tell."""
    if not any(over) and all(under):
        return f"exactly zero: {'holds' if low == 0 else 'fails'}"
    if not all(over + under):
        return "some are exactly zero: cannot tell"
    middle, *ends = typical([x / y for x, y in zip(over, under)])
    inside = low < ends[0] and ends[1] < high
    word = "holds" if inside else "fails" if ends[1] < low or ends[0] > high else "cannot tell"
    return f"{middle:.3g} [{ends[0]:.3g}, {ends[1]:.3g}]: {word}"


def claims(all_: dict[str, Results]) -> None:
    """The criteria, fixed before the runs."""
    for name, r in all_.items():
        print(f"\n{name}")
        for pair, claim in (("fixed order", "1. equal bits"), ("this CPU", "2. other bits")):
            equal = [value == 0 for value in r.of(pair, "gap", "largest")]
            right = sum(equal) if pair == "fixed order" else len(equal) - sum(equal)
            none = right == 0 or pair == "fixed order"
            word = "holds" if right == len(equal) else "fails" if none else "cannot tell"
            print(f"{claim} with a batch of 1, {pair}: {right} of {len(equal)}: {word}")
        chance = r.of("this CPU", "twin")
        print("3. ... and at most 1.5 twins:", ratio(r.of("this CPU", "gap"), chance, 0, 1.5))
        for pair in ("BF16", "FP16"):
            twin = r.of(pair, "twin")
            for claim, cause in (("4. generation", "row"), ("5. split-K", "library")):
                print(f"{claim} at most 1.5 twins, {pair}:", ratio(r.of(pair, cause), twin, 0, 1.5))
        small = [max(pair) for pair in zip(*(r.of("BF16", each) for each in ("row", "library", "twin")))]
        for claim, cause in (("6. down-casts", "storage"), ("7. FP32 head", "head")):
            told = ratio(r.of("BF16", cause), small, 1.5, math.inf)
            print(f"{claim} above 1.5 times row, library and twin: {told}")
        causes = ("row", "library", "storage", "head")
        others = [max(each) for each in zip(*(r.of("BF16", cause) for cause in causes))]
        print("8. format above every other cause:", ratio(r.of("format", "gap"), others, 1, math.inf))
        told = ratio(r.of("BF16", "gap"), r.of("FP16", "gap"), 4, 16)
        print(f"9. BF16's whole gap is 4 to 16 of FP16's: {told}")
        heads = r.of("two FP32 heads", "gap"), r.of("BF16", "storage")
        print("10. FP32 heads in both halve the down-casts' gap:", ratio(*heads, 0, 0.5))
    if {"gpt", "moe"} <= set(all_):
        tails = [
            [x / y for x, y in zip(all_[name].of("BF16", "gap", "largest"), all_[name].of("BF16", "gap"))]
            for name in ("moe", "gpt")
        ]
        print("\n11. the largest gap is more means away in moe than in gpt:", ratio(*tails, 1, math.inf))


LINES = {  # of the table and the figure: name: pairs and what of them
    "both engines": [("BF16", "gap"), ("FP16", "gap")],
    "FP16 for BF16": [("format", "gap")],
    "down-casts": [("BF16", "storage"), ("FP16", "storage")],
    "... FP32 heads in both": [("two FP32 heads", "gap")],
    "FP32 head in one": [("BF16", "head"), ("FP16", "head")],
    "Ampere for Hopper": [("BF16", "row"), ("FP16", "row")],
    "split-K for one chain": [("BF16", "library"), ("FP16", "library")],
    "one-ulp twin": [("BF16", "twin"), ("FP16", "twin"), ("this CPU", "twin")],
    "batch 1 for 32, one chain": [("fixed order", "gap")],
    "batch 1 for 32, oneDNN": [("oneDNN's order", "gap")],
    "batch 1 for 32, this CPU": [("this CPU", "gap")],
}
SERIES = {"BF16": "#0072B2", "FP16": "#D55E00", "FP32, native": "#009E73"}


def show(all_: dict[str, Results], folder: Path) -> None:
    panels = []
    for name, r in all_.items():
        print(f"\n{name}: {len(r.found['BF16'])} batches, {r.found['BF16'][0]['tokens']} tokens each")
        series = {
            label: {"label": label, "color": color, "mark": "dot", "width": 0, "points": [], "segments": []}
            for label, color in SERIES.items()
        }
        for row, (line, parts) in enumerate(LINES.items(), 1):
            for pair, what in parts:
                middle, low, high = typical(r.of(pair, what))
                about = f"[{low:.3g}, {high:.3g}]" if high < math.inf else ""
                print(f"  {line:26} {pair:15} {middle:.3g} {about}")
                label = "FP32, native" if pair == "this CPU" else "FP16" if pair == "FP16" else "BF16"
                at = row + 0.22 * (list(SERIES).index(label) - 1) * (len(parts) > 1)
                if middle > 0:
                    series[label]["points"].append([middle, at])
                    if high < math.inf:
                        series[label]["segments"].append([low, at, high, at, 1.6])
        x = {"title": "mean |gap|, nats", "log": True, "low": 1e-8, "high": 0.1, "form": "power10"}
        y = {"names": list(LINES), "hidden": bool(panels)}
        title = {"gpt": "small GPT", "minilm": "MiniLM", "moe": "mixture of experts"}[name]
        panels.append(
            {"kind": "plot", "title": title, "height": 390, "x": x, "y": y, "series": list(series.values())}
        )
    figure = {
        "stem": "causes",
        "title": "How far two engines' log-probabilities are apart, cause by cause",
        "axes": "Mean of a batch, over batches: geometric mean and interval of 95 %. No dot: the same bits.",
        "caption": "Geometric means over batches and their intervals of 95 %.",
        "columns": 3,
        "styles": {label: {"color": color} for label, color in SERIES.items()},
        "panels": panels,
    }
    write(folder / "causes.figure.json", figure)
