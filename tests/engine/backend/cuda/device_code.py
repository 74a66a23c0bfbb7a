"""Reads device code out of a library, an object or a fatbin: every kernel of every architecture, its SASS,
what it takes, and its PTX. Needs cuobjdump and nvdisasm. device_code_test.py judges."""
import re
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

TOOLS = ("cuobjdump", "nvdisasm")
PACKAGES = ("nvidia-cuda-cuobjdump", "nvidia-cuda-nvdisasm")


@dataclass
class Entry:
    """A kernel in PTX."""
    architecture: int  # of the PTX, which may be another's
    threads: int = 0  # .maxntid; 0: none
    blocks: int = 1  # .minnctapersm
    shared: int = 0  # bytes of its static arrays
    padding: int = 0  # what their alignment, and that of the dynamic array after them, may take
    has_dynamic: bool = False
    operations: Counter = field(default_factory=Counter)  # "fma.rn.f32": times

    def has(self, pattern):
        return any(re.match(pattern + r"\b", operation) for operation in self.operations)


@dataclass
class Kernel:
    """A kernel on one architecture."""
    name: str
    architecture: int
    registers: int = 0
    stack: int = 0
    local: int = 0
    shared: int = 0
    ptx: Entry | None = None
    own: Counter = field(default_factory=Counter)  # instructions of its own code: "MUFU.RCP": times
    functions: set = field(default_factory=set)  # that ptxas put after it
    halves: list = field(default_factory=list)  # its instructions on pairs of 16 bits, with operands


def output(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{Path(command[0]).name}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def find_tools(nvcc, folder):
    """{name: path}: the toolkit's, or PyPI's in a virtual environment `folder`; or says SKIPPED and ends."""

    def found(places):
        paths = {tool: place / tool for tool in TOOLS for place in places if (place / tool).is_file()}
        return paths if len(paths) == len(TOOLS) else None

    def from_pypi():
        return found(list(folder.resolve().glob("lib/python3*/site-packages/nvidia/*/bin")))

    toolkit = [Path(shutil.which(nvcc) or nvcc).resolve().parent]
    toolkit += [Path(path).parent for tool in TOOLS if (path := shutil.which(tool))]
    if tools := found(toolkit) or from_pypi():
        return tools
    try:
        pip = [folder / "bin" / "pip", "--disable-pip-version-check", "install", "--quiet", *PACKAGES]
        for command in ([sys.executable, "-m", "venv", folder], pip):
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    except (subprocess.SubprocessError, OSError) as error:
        why = ((getattr(error, "stderr", None) or str(error)).strip().splitlines() or ["?"])[-1]
        print(f"SKIPPED: no cuobjdump and nvdisasm beside nvcc, on PATH or from PyPI ({why})")
        sys.exit(0)
    return from_pypi() or sys.exit(f"{', '.join(PACKAGES)}: no {' or no '.join(TOOLS)} is where it was")


def read_ptx(text):
    """{kernel: Entry}"""
    architecture = int(re.search(r"^\.target sm_(\d+)", text, re.M)[1])
    array = re.compile(r"^\s*(\.extern )?\.shared (?:\.align (\d+) )?\.[bsuf](\d+) ([\w$]+)(?:\[(\d*)\])?;",
                       re.M)
    head_of = re.compile(r"^(?:\.visible |\.weak )?\.(entry|func) (?:\([^)]*\)\s*)?([\w$]+)", re.M)
    heads = list(head_of.finditer(text))
    bodies, module, end = {}, "", 0  # what is outside of kernels belongs to the module
    for head, following in zip(heads, [head.start() for head in heads[1:]] + [len(text)]):
        module += text[end:head.start()]
        end = text.rfind("\n}", head.start(), following)
        if head[1] == "entry":
            bodies[head[2]] = text[head.start():end]
    of_module = array.findall(module + text[end:])

    entries = {}
    for name, body in bodies.items():
        entry = entries[name] = Entry(architecture)
        if bounds := re.search(r"\.maxntid (\d+)(?:, (\d+))?(?:, (\d+))?", body):
            entry.threads = int(bounds[1]) * int(bounds[2] or 1) * int(bounds[3] or 1)
        if blocks := re.search(r"\.minnctapersm (\d+)", body):
            entry.blocks = int(blocks[1])
        arrays = array.findall(body) + [one for one in of_module if one[3] in body]
        for external, alignment, bits, _, count in arrays:
            entry.has_dynamic |= bool(external)
            entry.shared += 0 if external else int(bits) // 8 * int(count or 1)
            entry.padding += int(alignment or int(bits) // 8) - 1
        for statement in re.split(r"[;\n{}]", body[body.index("{"):]):
            if operation := re.match(r"\s*(?:@!?%\w+\s+)?([a-z]\w*(?:(?:\.|::)\w+)*)(?:\s|$)", statement):
                entry.operations[operation[1].replace("::", ".")] += 1
    return entries


def read_sass(text, architecture):
    """{kernel: Kernel} of what `nvdisasm -c` prints"""
    kernels, kernel, own = {}, None, True
    instruction = re.compile(r"\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+ +)?([A-Z][\w.]*)([^;]*);")
    for line in text.splitlines():
        if found := instruction.match(line):
            if own:
                kernel.own[found[1]] += 1
                if re.match(r"H(ADD|MUL|FMA|MNMX|SET|SETP)2", found[1]):
                    kernel.halves.append((found[1] + found[2]).replace(".reuse", "").strip())
        elif section := re.match(r"\s+\.section\s+\.text\.([^,]+),", line):
            name = section[1].strip('"')
            kernel, own = kernels.setdefault(name, Kernel(name, architecture)), True
        elif function := re.match(r"\$\S*\$(__cuda_sm\w+):", line):
            kernel.functions.add(function[1])
            own = False
        elif re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+[^\s/]", line):
            sys.exit(f"nvdisasm printed what this test cannot read: {line.strip()}")
    return kernels


def read_cubin(file, tools):
    """{kernel: Kernel}, with what cuobjdump says it takes"""
    architecture = int(re.search(r"\.sm_(\d+)", file.name)[1])
    found = read_sass(output(tools["nvdisasm"], "-c", file), architecture)
    line = r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)"
    for name, *numbers in re.findall(line, output(tools["cuobjdump"], "-res-usage", file) if found else ""):
        kernel = found[name]
        kernel.registers, kernel.stack, kernel.shared, kernel.local = map(int, numbers)
    return found


def read_library(path, tools, work):
    """Its kernels, each with its PTX, and complaints about what does not fit together. work: a new folder."""
    work.mkdir()
    output(tools["cuobjdump"], "-xelf", "all", "-xptx", "all", path.resolve(), cwd=work)
    cubins = sorted(work.glob("*.cubin"), key=lambda file: -file.stat().st_size)
    with ThreadPoolExecutor(2) as pool:  # the disassembler takes nine tenths of the time
        read = pool.map(lambda file: read_cubin(file, tools), cubins)
        texts = [read_ptx(file.read_text()) for file in work.glob("*.ptx")]
        read = list(read)
    kernels, complaints = [], []
    for file, found in zip(cubins, read):
        fitting = [entries for entries in texts if entries.keys() == found.keys()]
        if found and not fitting:
            complaints.append(f"{path.name}: no PTX in it has the same kernels as its {file.name}")
        for name, kernel in found.items() if fitting else ():
            kernel.ptx = min((entries[name] for entries in fitting),
                             key=lambda entry: abs(entry.architecture - kernel.architecture))
            if kernel.registers == 0:
                complaints.append(f"{path.name}: cuobjdump says nothing about the registers of {name}")
            kernels.append(kernel)
    for options in re.findall(r"^ptxasOptions = (.*)$", output(tools["cuobjdump"], path), re.M):
        if "--fmad false" not in options:
            complaints.append(f"{path.name}: drivers get its PTX with '{options.strip()}', not --fmad false")
    return kernels, complaints


def own_name(kernel_name):
    """fp16lab::engine::gpu::(anonymous)::sgd<...>, mangled: sgd."""
    at, last = (3 if kernel_name.startswith("_ZN") else 2), kernel_name
    while length := re.match(r"\d+", kernel_name[at:]):
        at += length.end()
        last = kernel_name[at:at + int(length[0])]
        at += int(length[0])
    return last
