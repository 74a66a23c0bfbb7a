#!/usr/bin/env bash
# Checks the arrows between modules: which folder (and which part of engine/ and reports/) may include which; and that messages to
# people go through numerics/text/message.hpp, so that losing stderr ends nothing. Exit 1 names every line that does otherwise.
set -euo pipefail
cd "$(dirname "$0")/.."

# "a: b c" means: files below a may include what is below b and c. A folder of experiments/ may include itself and what
# "experiments/*" names; a line of its own names its neighbours.
export arrows='
numerics:        numerics
analysis:        analysis numerics
engine/tensor:   engine/tensor numerics
engine/data:     engine/data engine/tensor engine/backend numerics
engine/parallel: engine/parallel engine/tensor numerics
engine/backend:  engine/backend engine/tensor numerics
engine/autograd: engine/autograd engine/backend engine/parallel engine/tensor numerics
engine/amp:      engine/amp engine/autograd engine/backend engine/parallel engine/tensor numerics
engine/optim:    engine/optim engine/amp engine/autograd engine/backend engine/parallel engine/tensor numerics
engine/nn:       engine/nn engine/optim engine/amp engine/autograd engine/backend engine/parallel engine/tensor numerics
engine/train:    engine numerics
reports/embedded.hpp: reports/embedded.hpp
reports/data:         reports/data analysis numerics
reports/figures:      reports/figures reports/data reports/embedded.hpp analysis numerics
reports/page:         reports/page reports/figures reports/data reports/embedded.hpp analysis numerics
reports/playground:   reports/playground analysis numerics
python:          reports analysis engine numerics
experiments/*:   experiments/app experiments/study reports analysis engine numerics
experiments/app:               experiments/tensor_core_probe
experiments/tensor_core_probe: experiments/capture
experiments/bench:             experiments/questions
'

wrong=0
# One line an include, FILE:LINE:TEXT, for one awk: a process a line would take seconds.
awk -F: '
  BEGIN {
    rows = split(ENVIRON["arrows"], row, "\n")
    for (i = 1; i <= rows; ++i)
      if (split(row[i], part, ": +") == 2) allowed[part[1]] = part[2]
  }

  function permitted(room, target,    prefixes, prefix, i) {
    prefixes = split(allowed[room] (room ~ /^experiments\// ? " " room " " allowed["experiments/*"] : ""), prefix, " ")
    for (i = 1; i <= prefixes; ++i)
      if (target == prefix[i] || index(target, prefix[i] "/") == 1) return 1
    return 0
  }

  {
    split($0, quoted, "\"")
    target = quoted[2]
    split($1, folder, "/")
    room = folder[1] ~ /^(engine|experiments|reports)$/ ? folder[1] "/" folder[2] : folder[1]
    if (target ~ /^(numerics|analysis|engine|reports|experiments|tests)\// && !permitted(room, target)) {
      print $1 ":" $2 ": " room " must not include " target
      wrong = 1
    }
  }

  END { exit wrong }
' < <(grep -rnE '^[[:space:]]*#include "' --include='*.hpp' --include='*.cpp' --include='*.h' --include='*.cu' \
  --include='*.cuh' numerics analysis engine reports experiments python/bindings) >&2 || wrong=1

# Programs that stand alone are examples, and the capture that others compile.
if grep -rnE '(^|[(,])[[:space:]]*stderr[[:space:]]*[,)]|std::c(err|log)\b|\bperror[[:space:]]*\(' --include='*.hpp' \
  --include='*.cpp' --include='*.h' --include='*.cu' --include='*.cuh' numerics analysis engine reports experiments \
  python/bindings | grep -vE '^experiments/(examples|capture)/' |
  sed 's|$|   <- expected say or show_text of numerics/text/message.hpp|' | grep . >&2; then wrong=1; fi
exit $wrong
