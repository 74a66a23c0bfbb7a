"""The two figures of docs/lookup/formats.md, drawn from the table of formats: SVG that reads on light and dark pages."""

import math

INK, FAINT = "#444", "#bbb"
SIGN, EXPONENT, SIGNIFICAND = "#a63d7f", "#c05000", "#0072b2"
SUBNORMAL, NORMAL = "#8ec6ea", "#0072b2"
SHOWN = ["FP32", "TF32", "BF16", "FP16", "E5M2", "E4M3"]
CURVES = {"FP32": "#777777", "BF16": "#009e73", "FP16": "#0072b2", "E5M2": "#c05000", "E4M3": "#a63d7f"}


def text(x: float, y: float, words: str, anchor: str = "start", size: int = 12, colour: str = INK, weight: str = "normal") -> str:
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}" '
            f'font-weight="{weight}">{words}</text>')


def power(exponent: int) -> str:
    return f'2<tspan dy="-5" font-size="9">{str(exponent).replace("-", chr(0x2212))}</tspan>'


def box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str = FAINT) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="1"/>'


def svg(width: int, height: int, title: str, parts: list[str]) -> str:
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="DejaVu Sans, sans-serif" '
            f'role="img">\n<title>{title}</title>\n<rect width="{width}" height="{height}" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n")


def exponents(row: dict) -> tuple[int, int, int]:
    """log2 of the smallest number, of the smallest normal one and of the power of two above the largest."""
    return (round(math.log2(float(row["min_subnormal"]))), round(math.log2(float(row["min_normal"]))),
            math.ceil(math.log2(float(row["max_finite"]))))


def format_bits_figure(formats: list[dict]) -> str:
    rows = {row["name"]: row for row in formats}
    left, cell, top, step, axis = 56, 9, 66, 36, 430
    at = lambda exponent: axis + (exponent + 152) * 1.62  # noqa: E731
    parts = [text(left, 24, "bits", weight="bold"), text(axis, 24, "magnitudes that it holds", weight="bold"),
             text(left, 44, "sign", colour=SIGN), text(left + 40, 44, "exponent", colour=EXPONENT),
             text(left + 112, 44, "significand", colour=SIGNIFICAND),
             text(axis, 44, "subnormal", colour="#4a94c4"), text(axis + 84, 44, "normal", colour=NORMAL)]
    bottom = top + step * len(SHOWN)
    for exponent in (-150, -100, -50, -25, 0, 16, 50, 100):
        parts.append(line(at(exponent), top - 8, at(exponent), bottom - 4))
        parts.append(text(at(exponent), bottom + 14, power(exponent), "middle", 11))
    for index, name in enumerate(SHOWN):
        row, y = rows[name], top + step * index
        parts.append(text(left - 8, y + 14, name, "end", weight="bold"))
        significand = row["precision"] - 1
        colours = [SIGN] + [EXPONENT] * row["exponent_bits"] + [SIGNIFICAND] * significand
        parts += [box(left + cell * i, y, cell - 1, 18, colour) for i, colour in enumerate(colours)]
        parts.append(text(left + cell * len(colours) + 6, y + 14, f"1 + {row['exponent_bits']} + {significand}", size=10))
        smallest, normal, above = exponents(row)
        parts.append(box(at(smallest), y, at(normal) - at(smallest), 18, SUBNORMAL))
        parts.append(box(at(normal), y, at(above) - at(normal), 18, NORMAL))
    return svg(910, bottom + 26, "Bits and range of each format", parts)


def relative_error(row: dict, exponent: float) -> float:
    """log2 of the largest relative error of rounding a magnitude of 2^exponent to nearest; 0 where it becomes zero."""
    smallest, normal, _ = exponents(row)
    return min(0.0, -row["precision"] if exponent >= normal else smallest - 1 - exponent)


def relative_error_figure(formats: list[dict]) -> str:
    left, right, top, bottom, low, high = 70, 650, 40, 300, -44, 18
    x = lambda exponent: left + (exponent - low) / (high - low) * (right - left)  # noqa: E731
    y = lambda log2: top - log2 / 26 * (bottom - top)  # noqa: E731
    parts = [text(left, 22, "largest relative error of rounding to nearest, against magnitude", weight="bold")]
    for exponent in range(-40, high + 1, 8):
        parts += [line(x(exponent), top, x(exponent), bottom), text(x(exponent), bottom + 18, power(exponent), "middle", 11)]
    for log2, words in ((0, "100 %"), (-4, "6 %"), (-8, "0.4 %"), (-12, "0.02 %"), (-16, "0.002 %"), (-20, "1e-6"), (-24, "6e-8")):
        parts += [line(left, y(log2), right, y(log2)), text(left - 6, y(log2) + 4, words, "end", 11)]
    for row in (row for row in formats if row["name"] in CURVES):
        colour = CURVES[row["name"]]
        smallest, normal, above = exponents(row)
        end = min(above, high)
        points = sorted({float(low), float(max(low, smallest - 1)), float(max(low, normal)), float(end)})
        path = " ".join(f"{x(e):.1f},{y(relative_error(row, e)):.1f}" for e in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        beside = y(relative_error(row, end))
        if end < high:  # beyond the largest number there is nothing
            parts.append(f'<circle cx="{x(end):.1f}" cy="{beside:.1f}" r="3.5" fill="{colour}"/>')
        parts.append(text(x(end) + 8 if above < 16 else right + 10, beside + 4, row["name"], colour=colour, weight="bold"))
    parts.append(text(x(-43), y(0) + 16, "all is lost: rounds to zero", size=11))
    return svg(720, bottom + 32, "Relative rounding error against magnitude", parts)
