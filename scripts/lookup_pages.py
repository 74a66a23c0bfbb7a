#!/usr/bin/env python3
"""Writes docs/lookup/, and counts on other pages, from what the program prints, or compares it with them.

  scripts/lookup_pages.py --program build/bin/fp16lab            writes the pages
  scripts/lookup_pages.py --program build/bin/fp16lab --check    exit code 1, and a difference, where one is stale
"""

import argparse
import difflib
import json
import math
import re
import subprocess
import sys
from pathlib import Path

from lookup_figures import format_bits_figure, relative_error_figure

ROOT = Path(__file__).resolve().parents[1]
RUN_SCHEMA = ROOT / "numerics/files/run/run_schema.hpp"


def cell(text: object) -> str:
    """Text in a row of a table: no line ends, and no bars, stars or angles that Markdown would read as its own."""
    return re.sub(r"([|*<])", r"\\\1", " ".join(str(text).split()))


def code(text: object) -> str:
    return f"`{text}`" if str(text) else ""


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def number(value: object, is_scale: bool) -> str:
    """A parameter's value as the command line takes it: scales that are powers of two as such, and what is far from 1."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value > 0 and math.frexp(value)[0] == 0.5 and (is_scale or not 2**-7 < value < 2**8):
        return f"2^{math.frexp(value)[1] - 1}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def page(title: str, made_by: str, text: str, *parts: str) -> str:
    return "\n".join([f"# {title}\n", f"{text}\n\n*Made from `{made_by}` by `scripts/lookup_pages.py`; do not edit.*\n", *parts])


def config_keys(known: dict) -> str:
    sections: dict[str, list[list[str]]] = {}
    for key in known["config_keys"]:
        if key["name"] == "scaler.policy":  # a list that has a page of its own
            key = {**key, "expected": "auto, none, or another of the [policies](policies.md)"}
        row = [code(key["name"]), code(key["default"]), cell(key["expected"]), cell(key["doc"]), cell(key["read_with"])]
        sections.setdefault(key["name"].split(".")[0], []).append(row)
    head = ["key", "default", "expects", "what it is", "read with"]
    parts = [f"## {name}\n\n{table(head, rows)}" for name, rows in sections.items()]
    text = "Keys of a configuration in TOML, and of `--set SECTION.KEY=VALUE`. An unknown key is an error that names the nearest one. A key that nothing in the run reads is an error that says who reads it, where `--set` gives it, or a file gives it a value that is not its default; what `--set` or a variant of a sweep makes unread in a file is left out of the run, and a note says so. So one file may serve FP32 and O1: write it for O1, and say `--set amp.level=O0`. The `config.toml` of a run holds what it read."
    return page("Configuration keys", "fp16lab list config_keys --json", text, *parts)


def sweep_files(known: dict) -> str:
    tables: dict[str, list[list[str]]] = {}
    for key in known["sweep_keys"]:
        section, name = key["name"].split(".")
        tables.setdefault(section, []).append([code(name), cell(key["expected"]), code(key["default"]) or "required", cell(key["doc"])])
    parts = [f"## [[{section}]]\n\n{table(['key', 'expects', 'without it', 'what it is'], rows)}" for section, rows in tables.items()]
    example = ('[[workload]]\nname = "classifier"\nconfig = "classifier.toml"\nseeds = [1, 2, 3]\nset = ["train.epochs=1"]\n\n[[variant]]\n'
               'name = "FP32"\nset = ["amp.level=O0"]\n\n[[variant]]\nname = "torch"\nset = ["amp.level=O1", "scaler.policy=torch"]\n')
    text = ("What `sweep -c FILE` takes: every workload is trained with every variant and every seed, a run folder "
            "`WORKLOAD-VARIANT-seedN` each. The configuration of one run is a sweep too: one workload, called as the file, with three "
            "seeds from its `train.seed` on, in FP32 and as it says, or with `--policies a,b` in FP32 and under each of them at its "
            "`amp.level` (O1 where that is O0). `--policies` adds FP32 and the policies to a sweep file's variants, `--twin` FP32's "
            "[twin](../verdicts.md). A relative `data.path` is taken from the file in which it stands, that of `--set` from the working folder; "
            "runs keep it absolute. Names of files and workloads name folders; tables and the page call a workload so too, or `model.name` on `data.name` where it is called as its model.")
    return page("Sweep files", "fp16lab list sweep_keys --json", text, *parts, "## An example\n", f"```toml\n{example}```\n")


def framework_names(known: dict) -> str:
    rows = [[code(n["name"]), n["frameworks"], code(n["key"]), cell(n["note"])] for n in known["framework_names"]]
    text = ("What frameworks call the keys of a configuration. Such a name in a configuration or in `--set` is an error that names the key. "
            "[Mixed precision as each framework means it](../do/frameworks.md) has the levels.")
    return page("Frameworks' names", "fp16lab list framework_names --json", text,
                table(["their name", "of", "key here", "where the value is another one"], rows))


def layers(known: dict) -> str:
    parts = []
    for layer in known["layers"]:
        rows = [[code(a["name"]), "required" if a["required"] else code(a["default"]), cell(a["type"]), cell(a["description"])]
                for a in layer["arguments"]]
        arguments = "\n" + table(["argument", "default", "expects", "what it is"], rows) if rows else ""
        parts.append(f"## {layer['name']}\n\n{cell(layer['description'])}\n{arguments}")
    text = ("Rows of `[[model.layer]]`. Every row may also have `name`, `input`, `to_float` and `frozen`. "
            "[Your own network](../do/own_network.md) explains rows and blocks.")
    return page("Layers", "fp16lab list layers --json", text, *parts)


def configs(known: dict) -> str:
    rows = []
    for config in known["configs"]:
        name = Path(config["path"]).name
        rows.append([f"[{name}](../../experiments/configs/{name})", config["command"], cell(config["description"])])
    data = [[code(d["name"]), d["data"], code(d["package"]), cell(d["description"])] for d in known["datasets"]]
    text = "What ships in `experiments/configs/`, by name for `-c`, and the values of `data.name`."
    return page("Configurations and data", "fp16lab list configs datasets --json", text,
                "## Configurations\n", table(["file", "for", "what it does"], rows),
                "## Data\n", table(["data.name", "kind", "Debian package", "what it is"], data))


def policies(known: dict) -> str:
    rows, parts = [], []
    families = list(dict.fromkeys(policy["family"] for policy in known["policies"]))
    for policy in sorted(known["policies"], key=lambda policy: families.index(policy["family"])):
        values = " ".join(f"{p['name']}={number(p['default'], 'scale' in p['name'])}" for p in policy["parameters"])
        traits = [word for word, is_so in (("by statistics", policy["wants_statistics"]), ("by layer", policy["per_layer"]),
                                           ("not in powers of two", not policy["power_of_two_scales"])) if is_so]
        rows.append([code(policy["name"]), policy["family"], cell(policy["rule"]), ", ".join(traits), cell(policy["source"])])
        parts.append([code(policy["name"]), code(values)])
    meaning = {}
    for policy in known["policies"]:
        for parameter in policy["parameters"]:
            meaning.setdefault(parameter["name"], set()).add(parameter["help"])
    helps = [[code(name), cell("; ".join(sorted(texts)))] for name, texts in sorted(meaning.items())]
    text = "`scaler.policy`, `fp16lab policy --policy` and `lab.GradScaler` take these names. S is the loss scale."
    return page("Loss-scale policies", "fp16lab list policies --json", text,
                table(["policy", "family", "rule", "", "source"], rows),
                "## Parameters and defaults\n", table(["policy", "defaults"], parts),
                "## What parameters mean\n", table(["parameter", "what it is"], helps))


def dialects(known: dict) -> str:
    rules = ["uses_lists", "low_model", "batch_norm_f32", "master_weights", "low_gradients", "brings_scaler"]
    rows, parts = [], []
    for dialect in known["dialects"]:
        for level in dialect["levels"]:
            name = f"{level['level']} = {level['means']}" if "means" in level else level["level"]
            rows.append([dialect["name"], name, level["scaler"], level["unlisted"],
                         *("yes" if level[rule] else "" for rule in rules), cell(level["source"])])
            lists = level.get("op_lists", {})
            if "means" in level or not any(lists.values()):
                continue
            ops = [[code(op["op"]), cell(op["name"]), kind] for kind in lists for op in lists[kind]]
            parts.append(f"## {dialect['name']} {level['level']}\n\n" + table(["op", "the framework's name", "list"], ops))
    text = ("`amp.dialect` and `amp.level`. White operations run in 16 bits, black ones in FP32, `follows` in the widest dtype of "
            "their inputs, banned ones are errors; `unlisted` says what the others do.")
    return page("Dialects and levels", "fp16lab list dialects --json", text,
                table(["dialect", "level", "scaler", "unlisted", *(rule.replace("_", " ") for rule in rules), "source"], rows), *parts)


def formats(known: dict) -> str:
    rows = [[code(f["name"]), code(f["bits"]), str(f["width"]), str(f["exponent_bits"]), str(f["precision"]),
             *(f"{float(f[k]):.8g}" for k in ("max_finite", "min_normal", "min_subnormal")), code(f["encoding"])]
            for f in known["formats"]]
    head = ["format", "bits as", "width", "exponent bits", "precision", "largest", "smallest normal", "smallest", "encoding"]
    text = ("Precision counts the leading bit that is not stored. `inspect` takes bits after the prefix (`f16:0x3c00`), and "
            "formats of your own as `--format EXPONENT_BITS,PRECISION,ENCODING` (without an encoding: `ieee`).")
    encodings = table(["encoding", "codes that are no signed numbers"], [
        ["`ieee`", "those with the largest exponent field are infinities and NaNs"],
        ["`numbers`", "the last code of each sign is NaN; there are no infinities, and what overflows becomes NaN"],
        ["`finite`", "none: what overflows becomes the largest number, and so does NaN (with `invalid`), as CUDA has it"],
        ["`fnuz`", "that of -0 is NaN; there are no infinities, and the bias is one larger"],
        ["`scale`", "no sign bit, and the last code is NaN. A number is stored without its sign; E8M0 has no zero, and what is "
         "below 2^-127 becomes that"]])
    quantizers = table(["quantizer", "elements", "scales", "block", "rule", "other rules", "source"], [
        [code(q["name"]), code(q["element"]), code(q["scale"]), q["block"], code(q["rule"]),
         " ".join(code(rule) for rule in q["rules"] if rule != q["rule"]), cell(q["source"])] for q in known["quantizers"]])
    recipes = table(["recipe", "x", "weight", "gradient", "parts", "source"], [
        [code(r["name"]), *(code(r[k]) for k in ("x", "weight", "gradient")), ", ".join(r["parts"]), cell(r["source"])]
        for r in known["recipes"]])
    return page("Formats", "fp16lab list formats quantizers recipes --json", text, table(head, rows), encodings,
                "![Bits and range of each format](../figures/format_bits.svg)\n",
                "![Relative rounding error against magnitude](../figures/relative_error.svg)\n",
                "## Quantizers\n\nCodes with a scale for each block of rows x columns. [FP8 and FP4](../do/fp8_and_fp4.md) says how "
                f"to use them, and what the rules compute.\n\n{quantizers}",
                "## Recipes\n\nThe operands of a linear layer's products, each with its quantizer and rule: `amp.recipe`, and "
                f"`lab.recipe` in Python.\n\n{recipes}")


def tensor_cores(known: dict) -> str:
    rows = [[code(r["name"]), " ".join(r["operands"]), r["accumulator"], str(r["products_per_block"]),
             "" if r["fraction_bits"] is None else str(r["fraction_bits"]), "" if r["exponent_floor"] is None else str(r["exponent_floor"]), code(r["output"]), r["stages"], code(r["evidence"]), " ".join(r["chips"]),
             cell(r["hardware"]), cell(r["source"])] for r in known["tensor_cores"]]
    text = ("L products are summed in one fused block; F fraction bits are kept when terms are aligned; E0 is the least exponent of "
            "the alignment. Evidence `hardware`: equals published captures of chips; `hardware_test`: asserted on chips by a public "
            "test suite; `model`: as published. [Understand](../understand.md#what-a-tensor-core-adds) explains the columns. A "
            "chip's name may stand in the place of a model's, in any case: where two models have it and differ (FP8), name one.\n\n"
            "**A row is one instruction, and its sum over all of K one chain; a library's product is more**: the plans below say what "
            "`fp16lab mma --plan`, `fp16lab.matmul(..., plan=)` and `lab.emulate(..., library=)` make of a row. Without one they take the plan `instruction`: "
            "with FP8 that is not what `torch._scaled_mm` gives on that GPU.")
    plans = [[code(r["name"]), cell(r["library"]), cell(r["rows"]), cell(r["rule"]), cell(r["parameters"]), cell(r["unknown"]), code(r["evidence"]), cell(r["source"])]
             for r in known["plans"]]
    return page("Tensor cores", "fp16lab list tensor_cores --json` and `fp16lab list plans --json", text,
                table(["model", "operands", "sums", "L", "F", "E0", "output", "stages", "evidence", "chips", "hardware", "source"],
                      rows),
                "## Plans\n", table(["plan", "library", "rows", "order over K", "and depends on", "refused", "evidence", "source"], plans))


def run_folder(known: dict) -> str:
    head = RUN_SCHEMA.read_text().split("#pragma once")[0]
    about = " ".join(re.sub(r"^//", "", line).strip() for line in head.split("//\n")[-1].splitlines())
    files = [[code(r["name"]), cell(r["written"])] for r in known["records"] if r["written"]]
    parts = ["## Files\n", table(["file", "what it is"], files), about + "\n",
             "A flag is 0 or 1 in CSV, and a hash 16 hex digits there. Since: the first schema version of the file that has it. "
             "No value: an empty field in CSV; in JSON null, or the key is missing.\n"]
    inside: dict[str, dict] = {r["name"]: r for r in known["records"]}
    for record in known["records"]:
        if not record["fields"] or ": " in record["name"] or record["name"] == "replay.json":
            continue
        text, *lines = record["description"].split("\n")
        rows: list[list[str]] = []
        for field in record["fields"]:
            part = inside.get(f"{record['name']}: {field['name']}", {"description": "", "fields": []})
            about = [{**field, "description": ". ".join(filter(None, (field["description"], part["description"])))}]
            rows += [[code(f["name"]), cell(f["type"]) + (", or none" if f["optional"] else ""), f["unit"], str(f["since"]), cell(f["description"])]
                     for f in about + [{**f, "name": f"{field['name']}.{f['name']}"} for f in part["fields"]]]
        parts += [f"## {record['name']}\n", cell(text) + "\n", *(cell(line) + "\n" * (not line.startswith("- ") or line == lines[-2]) for line in lines),
                  table(["name", "type", "unit", "since", "what it is"], rows)]
    version = re.search(r"run_schema_version = (\d+)", RUN_SCHEMA.read_text()).group(1)
    text = (f"What `train` writes, schema version {version}. A run is finished when its manifest says so. Every version so far is read. "
            "`fp16lab.load_run` has the files as tables.")
    return page("The run folder", "fp16lab list records --json", text, *parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, required=True, help="the fp16lab to ask")
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    arguments = parser.parse_args()
    known = json.loads(subprocess.run([arguments.program, "list", "--json"], check=True, capture_output=True, text=True).stdout)
    made = {f"lookup/{make.__name__}.md": make(known)
            for make in (config_keys, sweep_files, framework_names, layers, configs, policies, dialects, formats, tensor_cores, run_folder)}
    made["figures/format_bits.svg"] = format_bits_figure(known["formats"])
    made["figures/relative_error.svg"] = relative_error_figure(known["formats"])

    # Other pages have the number of policies too.
    for name in ("../README.md", "../README.zh.md", "../python/README.md", "do/policies.md", "understand.zh.md"):
        there = (ROOT / "docs" / name).read_text()
        made[name], found = re.subn(r"\b\d+(?=( loss-scale)? policies| 种(策略|规则))", str(len(known["policies"])), there)
        assert found, f"{name} does not say how many policies there are: take it out of this list"

    stale = 0
    for name, text in made.items():
        path = ROOT / "docs" / name
        there = path.read_text() if path.exists() else ""
        if there == text:
            continue
        stale += 1
        if arguments.check:
            difference = difflib.unified_diff(there.splitlines(), text.splitlines(), f"docs/{name}", "what it is now", lineterm="", n=0)
            print(*list(difference)[:20], sep="\n")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"docs/{name}")
    if arguments.check and stale:
        print(f"{stale} of {len(made)} files are stale: run scripts/lookup_pages.py --program {arguments.program}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
