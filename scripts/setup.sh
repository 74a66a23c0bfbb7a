#!/usr/bin/env bash
# Installs the Debian packages that fp16lab needs and that are missing (scripts/packages.txt; root or sudo), and exports
# the King James Bible, the text of the character models, to .cache/data/bible-kjv.txt.
# Does nothing, and needs neither network nor root, when everything is there.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
  "") ;;
  -h | --help) echo "usage: scripts/setup.sh    install the missing packages of scripts/packages.txt, export the text" && exit 0 ;;
  *) echo "scripts/setup.sh: unknown argument '$1' (there are none; see --help)" >&2 && exit 2 ;;
esac

# The whole text, a verse a line, or nothing: a temporary name in the same folder, then a rename.
export_text() {
  local text=.cache/data/bible-kjv.txt partial
  if [[ -s $text ]]; then return; fi
  mkdir -p "${text%/*}"
  partial=$(mktemp "$text.XXXXXX")
  if ! bible -f gen1:1-rev22:21 </dev/null >"$partial" || [[ $(tail -n 1 "$partial") != Rev22:21\ * ]]; then
    rm -f "$partial"
    echo "scripts/setup.sh: 'bible -f gen1:1-rev22:21' (Debian package bible-kjv) did not give the whole text" >&2
    exit 1
  fi
  chmod 644 "$partial"
  sync "$partial"
  mv -f "$partial" "$text"
}

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

if ((${#missing[@]} == 0)); then
  export_text
  exit 0
fi

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
export_text
