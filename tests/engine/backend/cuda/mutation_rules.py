"""Finds places in the CUDA back end's device code where one small change should make a test fail."""
import hashlib
import os
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOMS = ("product", "verbs", "runtime")
CUDA = Path("engine/backend/cuda")

# (kind, what is found in a function of device code, what stands there instead). Comments are blank when the
# rules look; a place is mutated once by a rule.
RULES = (
    ("barrier", r"__syncthreads\(\);", ";"),
    ("barrier", r"__syncwarp\([^()]*\);", ";"),
    ("copy wait", r"wait_for_copies<[^>]*>\(\);", ";"),
    ("copy wait", r"commit_copies\(\);", ";"),
    ("loop bound", r"(for \([^;{}]*;[^;{}]*?) < ", r"\1 <= "),
    ("loop bound", r"(for \([^;{}]*;[^;{}]*?) >= ", r"\1 > "),
    ("loop bound", r"(for \([^;{}]*;[^;{}]*?) > ", r"\1 >= "),
    ("loop step", r"(for \([^;{}]*;[^;{}]*;[^;{}]*?\+= )(?=\w)", r"\1 1 + "),
    ("guard", r"(?<=[\w)\]] )<(?= [\w(])", "<="),
    ("guard", r"(?<=[\w)\]] )<=(?= [\w(])", "<"),
    ("guard", r"(?<=[\w)\]] )==(?= [\w(])", "!="),
    ("dropped guard", r" && [\w. +*/%<>=!-]+(?=[);?:]| &&)", ""),
    ("dropped guard", r"(?<=\()[\w. +*/%<>=!-]+ && ", ""),
    ("sign", r"(?<=[\w)\]]) \+ (?=[\w(])", " - "),
    ("sign", r"(?<=[\w)\]]) - (?=[\w(])", " + "),
    ("stride", r" \* (\w*(?:stride|pitch|extent|columns|width|inner|outer|bytes|per_row|size)\w*)\b(?![(.<])",
     r" * (\1 + 1)"),
    ("stride", r"\b(\w+) \* ([\w.]+) \+ (\w+)\b(?![.(\[])", r"\3 * \2 + \1"),
    ("index", r"\[(\w+)\]\[(\w+)\]", r"[\2][\1]"),
    ("index", r"(?<=[\w)])\[(\w+)\](?!\[)", r"[\1 ^ 1]"),
    ("lane", r"\bthreadIdx\.x (%|/) 32", r"threadIdx.x \1 16"),
    ("lane", r"(lane|threadIdx\.x) == 0\b", r"\1 == 1"),
    ("lane", r"0xffffffffu", "0x7fffffffu"),
    ("exchange", r"__shfl_(down|xor)_sync", lambda m: f"__shfl_{'xor' if m[1] == 'down' else 'down'}_sync"),
    ("exchange", r"\batomic(Max|Min)\(", lambda m: f"atomic{'Min' if m[1] == 'Max' else 'Max'}("),
    ("exchange", r"\batomicAdd\(", "atomicMax("),
    ("rounding", r"\bcanonicalize\(", "("),
    ("rounding", r"\.rn\.(f16|bf16)\.f32", r".rz.\1.f32"),
    ("rounding", r"\bstored<(\w+)>\((?=\w)", r"stored<\1>(1.0009765625f * "),
    ("constant", r"(?<=[?:=] )0\.0f", "1.0f"),
    ("constant", r"(?<== )0(?=[,;])", "1"),
)


@dataclass(frozen=True)
class Mutation:
    id: str  # "verbs/reduce.cu:barrier:1f2e3d4c": the same until its line changes
    file: str  # below engine/backend/cuda
    kind: str
    rule: int  # of RULES
    line: int
    before: str
    after: str
    text: str  # of the whole file


def blank(text):
    """The text with comments and directives blank, every character in its place."""
    def spaces(match):
        return re.sub(r"[^\n]", " ", match[0])
    text = re.sub(r"//[^\n]*|/\*.*?\*/", spaces, text, flags=re.S)
    text = re.sub(r"static_assert\([^;]*;", spaces, text)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", spaces, text, flags=re.M)


def device_spans(code):
    """(begin, end) of each body of a __device__ or __global__ function."""
    spans = []
    for mark in re.finditer(r"__(?:device|global)__", code):
        opening = re.compile(r"[;{]").search(code, mark.end())
        if not opening or opening[0] == ";" or (spans and opening.start() < spans[-1][1]):
            continue
        depth, at = 0, opening.start()
        while at < len(code):
            depth += {"{": 1, "}": -1}.get(code[at], 0)
            at += 1
            if depth == 0:
                break
        spans.append((opening.start(), at))
    return spans


def mutations_of(file, text):
    """All mutations of one source by all rules."""
    code, found, taken, seen = blank(text), [], set(), defaultdict(int)
    spans = device_spans(code)
    for rule, (kind, pattern, to) in enumerate(RULES):
        for match in re.finditer(pattern, code):
            if not any(begin <= match.start() and match.end() <= end for begin, end in spans):
                continue
            after = match.expand(to) if isinstance(to, str) else to(match)
            # The first character that changes is the place: rules of one kind must not mutate it twice.
            same = len(os.path.commonprefix([match[0], after]))
            at = match.start() + same
            mutated = text[:match.start()] + after + text[match.end():]
            if after == match[0] or (at, mutated[at:at + 8]) in taken:
                continue
            taken.add((at, mutated[at:at + 8]))
            line_begin = text.rfind("\n", 0, at) + 1
            line_end = text.find("\n", at)
            line = " ".join(text[line_begin:line_end].split())
            # A line that is there twice: told apart by its count; places in a line: by their column.
            column = at - line_begin - len(text[line_begin:at]) + len(text[line_begin:at].lstrip())
            key = f"{line}|{column}|{after[same:]}"
            seen[key] += 1
            digest = hashlib.sha256(f"{key}|{seen[key]}".encode()).hexdigest()[:8]
            grown = len(mutated) - len(text)
            found.append(Mutation(f"{file}:{kind.replace(' ', '-')}:{digest}", file, kind, rule,
                                  text.count("\n", 0, at) + 1, line,
                                  " ".join(mutated[line_begin:line_end + grown].split()), mutated))
    return found


def sources(root):
    """(file, text) of every source that has device code, in the order of names."""
    for room in ROOMS:
        for path in sorted((root / CUDA / room).iterdir()):
            if path.suffix in (".cu", ".hpp"):
                text = path.read_text()
                if device_spans(blank(text)):
                    yield str(path.relative_to(root / CUDA)), text


def selection(everything, count):
    """`count` of them, one from each file and kind before any gives a second; by digest within each."""
    strata = defaultdict(list)
    for one in everything:
        strata[one.file, one.kind].append(one)
    ordered = []
    for members in strata.values():
        members.sort(key=lambda one: one.id.rsplit(":")[-1])
        ordered += [(rank, one.id.rsplit(":")[-1], one) for rank, one in enumerate(members)]
    ordered.sort(key=lambda entry: entry[:2])
    return [one for _, _, one in ordered[:count]]
