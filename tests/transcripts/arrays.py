"""Writes array files for a transcript, without the code that reads them.

arrays FILE 'NAME=TYPE SHAPE NUMBERS' ... FILE ...: .npy, .npz or .safetensors by the ending, with the types of that format.
SHAPE is 2,4 (2,4F: in Fortran's order). Numbers may be powers such as -2^-26; after the word hex come bytes, after the
word file their file. Where a shell makes the text, ~ may stand for a blank.
"""

import json
import struct
import sys
import zipfile

CODES = {"f2": "e", "f4": "f", "f8": "d", "F16": "e", "F32": "f", "F64": "d"}


def parsed(text):
    name, _, rest = text.partition("=")
    kind, shape, *words = rest.replace("~", " ").split()
    if words[:1] == ["hex"]:
        data = bytes.fromhex("".join(words[1:]))
    elif words[:1] == ["file"]:
        data = open(words[1], "rb").read()
    else:
        numbers = [float(eval(w.replace("^", "**"), {"inf": float("inf"), "nan": float("nan")})) for w in words]
        data = struct.pack(f"<{len(numbers)}{CODES[kind.lstrip('<')]}", *numbers)
    return name, kind, shape.endswith("F"), [int(n) for n in shape.rstrip("F").split(",")], data


def npy(kind, fortran, shape, data):
    head = f"{{'descr': '{kind}', 'fortran_order': {fortran}, 'shape': {tuple(shape)}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + data


def safetensors(arrays):
    header, data = {}, b""
    for name, kind, _, shape, content in arrays:
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


files = {}
for argument in sys.argv[1:]:
    if "=" in argument:
        files[file].append(parsed(argument))
    else:
        files[file := argument] = []
for file, arrays in files.items():
    if file.endswith(".npz"):
        with zipfile.ZipFile(file, "w") as archive:
            for name, *array in arrays:
                archive.writestr(name + ".npy", npy(*array))
    else:
        open(file, "wb").write(npy(*arrays[0][1:]) if file.endswith(".npy") else safetensors(arrays))
