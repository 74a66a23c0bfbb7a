#!/usr/bin/env bash
# Installs the Debian packages that fp16lab needs and that are missing (scripts/packages.txt). Root or sudo.
# Does nothing, and needs neither network nor root, when everything is there.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
  "") ;;
  -h | --help) echo "usage: scripts/setup.sh    install the missing packages of scripts/packages.txt" && exit 0 ;;
  *) echo "scripts/setup.sh: unknown argument '$1' (there are none; see --help)" >&2 && exit 2 ;;
esac

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "scripts/setup.sh: no apt-get here. Install the equivalents of scripts/packages.txt by hand." >&2
  exit 1
fi

missing=()
while IFS='|' read -r package file; do
  package=${package//[[:space:]]/}
  file=${file//[[:space:]]/}
  if [[ -z $package || $package == \#* ]]; then continue; fi
  if [[ -n $file && -e $file ]]; then continue; fi
  if [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true) != installed ]]; then
    missing+=("$package")
  fi
done <scripts/packages.txt

if ((${#missing[@]} == 0)); then exit 0; fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "scripts/setup.sh: missing packages need root or sudo: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "setup: installing ${#missing[@]} packages: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq >&2
"${as_root[@]}" apt-get install -y -qq --no-install-recommends --no-remove "${missing[@]}" >&2
