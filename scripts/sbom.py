#!/usr/bin/env python3
"""What a wheel contains, in CycloneDX 1.6 (ECMA-424): scripts/sbom.py VERSION THIRD_PARTY/versions NAME=VERSION... > FILE

Libraries of the third-party folder (scripts/third_party.sh) and what the compiler adds (NAME=VERSION), with their licences. A
library that has no row here is an error, so that none enters a wheel without its licence.
"""
import json
import sys

# By Debian's source package, or the name on PyPI: what it is called, its licence by SPDX, what it is.
COMPONENTS = {
    "boost": ("Boost (Multiprecision, Math)", "BSL-1.0", "exact rationals, quantiles of distributions"),
    "cli11": ("CLI11", "BSD-3-Clause", "the command line"),
    "fmtlib": ("fmt", "MIT", "texts"),
    "highway": ("Highway", "Apache-2.0 OR BSD-3-Clause", "vectors of every width"),
    "nanobind": ("nanobind, with tsl::robin_map", "BSD-3-Clause AND MIT", "bindings of the Python module"),
    "nlohmann-json3": ("JSON for Modern C++", "MIT", "JSON"),
    "tomlplusplus": ("toml++", "MIT", "configurations"),
    "ziglang": ("libc++, libc++abi and libunwind of LLVM, compiler-rt of zig", "Apache-2.0 WITH LLVM-exception AND MIT",
                "the standard library of C++"),
    "zlib": ("zlib", "Zlib", "compressed files"),
}


def component(package, version):
    name, licence, description = COMPONENTS[package]
    source = "pypi" if package in ("nanobind", "ziglang") else "deb/debian"
    return {"type": "library", "name": name, "version": version, "description": description,
            "licenses": [{"expression": licence}], "purl": f"pkg:{source}/{package}@{version.replace('+', '%2B')}"}


def main():
    version, versions, *others = sys.argv[1:]
    with open(versions) as file:
        found = [line.split() for line in file] + [other.split("=") for other in others]
    print(json.dumps({
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"component": {"type": "library", "name": "fp16lab", "version": version,
                                   "licenses": [{"expression": "Apache-2.0"}], "purl": f"pkg:pypi/fp16lab@{version}"}},
        "components": [component(*one) for one in sorted(found)]}, indent=1))


if __name__ == "__main__":
    main()
