`fp16lab hist` answers first: what is wrong, by name, then the worst tensors, and what changes from step to
step.

  $ . "$TESTDIR/setup.sh"
  $ fifty=$(yes 1e-9 | head -50 | xargs)
  $ arrays n.npz 'a=<f8 2 1e-3 nan' "b=<f8 51 $fifty 1e-3"
  $ fp16lab hist n.npz | grep .
  1 of 2 tensors holds Inf or NaN: a (1 NaN of 2 values).
  FP16 at 2^0 makes 96.2 % of the finite non-zero values zero, most in b: 98.0 % of its own. Losing them raises no tensor's rounding error by a tenth.
  All 2 tensors, the worst first, in FP16 at loss scale 2^0, percent of the finite non-zero values (error 1.00: what FP16's precision costs)
  tensor              values  Inf, NaN         magnitudes   overflow rounds to 0   subnormal    error  scales that fit
  a                        2         1       0.001..0.001          0           0           0     1.00  2^-4 .. 2^25 (by its finite values)
  b                       51         0       1e-09..0.001          0        98.0           0     1.00  2^-4 .. 2^25
  all tensors             53         1       1e-09..0.001          0        96.2           0     1.00  
  This covers 52 of 53 values; the others are Inf or NaN. In FP16 every tensor fits from 2^-4 (a) to 2^25 (a): nothing overflows, and rounding costs at most 1.1 times what FP16's precision costs by itself. Without a loss scale they fit too. Suggested: 2^17: gradients may become 256 times as large before one overflows, and 2^21 times as small before rounding costs more.
  Next: lab.explain_overflow(model, closure, scale=1.0) names the first operation that gave an Inf or NaN (for PyTorch; docs/nan.md has the others)
  $ for scale in 2^16 3; do fp16lab hist n.npz --recorded-scale $scale | grep -o 'Next: .*) names'; done
  Next: lab.explain_overflow(model, closure, scale=2.0**16) names
  Next: lab.explain_overflow(model, closure, scale=3.0) names
  $ fp16lab hist n.npz --json | of_json '[x["account"]["nothing_to_fix"], x["account"]["findings"][0]]'
  [false, {"trouble": "non_finite", "serious": true, "tensor": "a", "since": null, "text": "1 of 2 tensors holds Inf or NaN: a (1 NaN of 2 values)."}]
  $ arrays worse.npz 'a=<f8 3 inf -inf 1' 'b=<f8 1 nan' 'c=<f8 1 1' 'd=<f8 2 nan inf'
  $ fp16lab hist worse.npz | head -1
  3 of 4 tensors hold Inf or NaN: a (2 Inf of 3 values), b (1 NaN of 1 value), d (1 Inf, 1 NaN of 2 values).

What overflows, and by how much; at the suggested scale there is nothing to fix. Where no scale suits all, the
next command leaves out the tensor that overflows.

  $ nine() { yes $1 | head -9 | xargs; }
  $ arrays big.npz "w1=<f8 9 $(nine 1e-3)" 'w2=<f8 2 100 1e-3'
  $ fp16lab hist big.npz --scale 2^16 | grep .
  FP16 at 2^16 makes 9.1 % of the finite non-zero values Inf or NaN, most in w2: 50.0 % of its own, the largest 100 times FP16's largest number.
  All 2 tensors, the worst first, in FP16 at loss scale 2^16, percent of the finite non-zero values (error 1.00: what FP16's precision costs)
  tensor              values  Inf, NaN         magnitudes   overflow rounds to 0   subnormal    error  scales that fit
  w2                       2         0       0.001..1e+02       50.0           0           0        -  2^-26 .. 2^9
  w1                       9         0       0.001..0.001          0           0           0     1.00  2^-4 .. 2^25
  all tensors             11         0       0.001..1e+02        9.1           0           0        -  
  In FP16 every tensor fits from 2^-4 (w1) to 2^9 (w2): nothing overflows, and rounding costs at most 1.1 times what FP16's precision costs by itself. Without a loss scale they fit too. Suggested: 2^3: gradients may become 64 times as large before one overflows, and 128 times as small before rounding costs more.
  Next: fp16lab hist big.npz --scale '2^3' (the same at the suggested scale)
  $ fp16lab hist big.npz | head -1
  Nothing to fix: every value is finite, and every tensor fits.
  $ arrays odd.npz "a=<f8 9 $(nine 1e-7)" 'b=<f8 2 1e6 1e-7' 'c=<f8 1 1e-7'
  $ fp16lab hist odd.npz --scale 2^2 | tail -1
  Next: fp16lab hist odd.npz --scale '2^2' --exclude b (what the other tensors need)

Gradients that died, or that a cast made zero before they were written, are nothing to praise.

  $ arrays zeros.npz 'w=<f8 2 0 0' 'b=<f8 1 0'; fp16lab hist zeros.npz | head -1
  Not judged: every value is zero.
  $ fp16lab hist zeros.npz --json | of_json 'x["account"]["nothing_to_fix"]'
  false
  $ arrays w1.npz 'w=<f8 1 1' w2.npz 'w=<f8 1 0'; fp16lab hist 'w?.npz' | grep 'taken\|rose\|fell'
  2 files with the same tensor: taken as steps 1, 2 of one run, by the numbers in their names (--separate reports them one by one).
  From step 1 to 2 the largest magnitude of w fell, from 1 to 0.

Four dumps of a model of 62 tensors are steps of one run: one screen, and what changed from step to step.
`--separate` reports them one by one, `--all` every tensor of every step.

  $ names=$(seq 0 60)
  $ for step in 9 499 500 1000; do case $step in 500) big=23;; *) big=1;; esac
  > case $step in 1000) last=nan;; *) last=2^-14;; esac
  > arrays step-$step.npz $(for n in $names; do echo "block$n.weight=<f8~3~$((1 + n % 7))*2^-20~2^-26~2^-30"
  > done) "lm_head=<f8~2~$big*2^-12~$last"; done
  $ fp16lab hist 'step-*.npz' | grep .
  4 files with the same 62 tensors: taken as steps 9, 499, 500, 1000 of one run, by the numbers in their names (--separate reports them one by one).
  1 of 62 tensors holds Inf or NaN, first in step 1000: lm_head in step 1000 (1 NaN of 2 values).
  FP16 at 2^0 makes 66.0 % of the finite non-zero values zero, most in block0.weight in step 1000: 66.7 % of its own. In 61 tensors that alone makes the rounding error more than 1.1 times what FP16's precision costs.
  The 10 worst of 62 tensors in FP16 at loss scale 2^0, percent of the finite non-zero values (error 1.00: what FP16's precision costs)
  tensor              step         values  Inf, NaN         magnitudes   overflow rounds to 0   subnormal    error  scales that fit all steps
  lm_head             1000              2         1   0.00024..0.00024          0           0           0     1.00  2^-10 .. 2^23 (by its finite values)
  block0.weight       1000              3         0   9.3e-10..9.5e-07          0        66.7        33.3    55.53  2^6 .. 2^35
  block7.weight       1000              3         0   9.3e-10..9.5e-07          0        66.7        33.3    55.53  2^6 .. 2^35
  block14.weight      1000              3         0   9.3e-10..9.5e-07          0        66.7        33.3    55.53  2^6 .. 2^35
  block21.weight      1000              3         0   9.3e-10..9.5e-07          0        66.7        33.3    55.53  2^6 .. 2^35
  block28.weight      1000              3         0   9.3e-10..9.5e-07          0        66.7        33.3    55.53  2^6 .. 2^35
  block35.weight      1000              3         0   9.3e-10..9.5e-07          0        66.7        33.3    55.53  2^6 .. 2^35
  block42.weight      1000              3         0   9.3e-10..9.5e-07          0        66.7        33.3    55.53  2^6 .. 2^35
  block49.weight      1000              3         0   9.3e-10..9.5e-07          0        66.7        33.3    55.53  2^6 .. 2^35
  block56.weight      1000              3         0   9.3e-10..9.5e-07          0        66.7        33.3    55.53  2^6 .. 2^35
  all tensors                         740         1    9.3e-10..0.0056          0        66.0        33.0     1.00  
  From step 499 to 500 the largest magnitude of lm_head rose 23 times, from 0.00024 to 0.0056.
  This covers 739 of 740 values; the others are Inf or NaN. In FP16 every tensor fits from 2^6 (step-1000.npz:block0.weight) to 2^23 (step-500.npz:lm_head): nothing overflows, and rounding costs at most 1.1 times what FP16's precision costs by itself. Suggested: 2^15: gradients may become 256 times as large before one overflows, and 512 times as small before rounding costs more.
  Next: lab.explain_overflow(model, closure, scale=1.0) names the first operation that gave an Inf or NaN (for PyTorch; docs/nan.md has the others)
  $ fp16lab hist 'step-*.npz' --json | of_json \
  > '[x["account"]["findings"][0]["since"], x["arrays"][0]["step"]]' 'x["changes"]'
  [1000, 1000]
  [{"tensor": "lm_head", "from": 499, "to": 500, "greatest": [0.000244140625, 0.005615234375]}]
  $ fp16lab hist 'step-*.npz' --format f16,bf16,e4m3,e5m2 | wc -l
  25
  $ fp16lab hist 'step-*.npz' --all | wc -l
  512
  $ fp16lab hist 'step-*.npz' --separate | tee out | grep 'taken as\|npz:$'; wc -l < out
  step-1000.npz:
  step-499.npz:
  step-500.npz:
  step-9.npz:
  80

A tensor that the table shows in its worst step is judged in all of them: b loses in step 1 what it does not
in step 2, where it holds a NaN.

  $ arrays s1.npz 'a=<f8 2 2^-30 2^-31' 'b=<f8 2 2^-30 2^-31' s2.npz 'a=<f8 2 2^-30 0.5' 'b=<f8 2 nan 0.5'
  $ fp16lab hist 's?.npz' | grep 'In 2 tensors\|^[ab] '
  FP16 at 2^0 makes 71.4 % of the finite non-zero values zero, most in a in step 1: 100.0 % of its own. In 2 tensors that alone makes the rounding error more than 1.1 times what FP16's precision costs.
  b                   2              2         1           0.5..0.5          0           0           0     1.00  2^7 .. 2^16 (by its finite values)
  a                   1              2         0   4.7e-10..9.3e-10          0       100.0           0   > 1000  2^7 .. 2^16

Which number is the step: the one that differs and is whole; else the order that is given. Shards of one model
have other tensors each, and a folder of arrays is a step.

  $ steps() { fp16lab hist "$@" --json | of_json '[a["step"] for a in x["arrays"]], x["assumed"]'; }
  $ arrays run2-step-100-loss-0.53.npz 'w=<f8 1 1' run2-step-200-loss-0.41.npz 'w=<f8 1 4'
  $ steps run2-step-200-loss-0.41.npz run2-step-100-loss-0.53.npz
  [[200, 100], "2 files with the same tensor: taken as steps 100, 200 of one run, by the numbers in their names (--separate reports them one by one)."]
  $ fp16lab hist 'run2-step-*' | grep rose
  From step 100 to 200 the largest magnitude of w rose 4 times, from 1 to 4.
  $ cp run2-step-100-loss-0.53.npz before.npz; cp run2-step-200-loss-0.41.npz after.npz
  $ steps before.npz after.npz; steps before.npz
  [[1, 2], "2 files with the same tensor: taken as steps 1, 2 of one run, in the order given, since no number in their names distinguishes them (--separate reports them one by one)."]
  [[null], ""]
  $ arrays model-00001-of-00002.npz 'w=<f8 1 1' model-00002-of-00002.npz 'v=<f8 1 1'; steps model-*
  [[null, null], "2 files with different tensors: taken as parts of one set (--separate reports them one by one)."]
  $ mkdir s10 s20; for file in s10/fc1 s10/fc2 s20/fc1 s20/fc2; do arrays $file.npy 'x=<f8 1 1'; done
  $ steps s10/*; steps s10/fc1.npy s20/fc1.npy s10/fc2.npy s20/fc2.npy
  [[null, null], "2 files with different tensors: taken as parts of one set (--separate reports them one by one)."]
  [[10, 20, 10, 20], "2 folders with the same 2 tensors: taken as steps 10, 20 of one run, by the numbers in their names (--separate reports their files one by one)."]

A run is judged in the format that it stored, at the scale that it had. Scales are powers of two for people,
and numbers for programs.

  $ small bf16 --set amp.dtype=bf16; fp16lab hist bf16 2>&1 | grep -o 'shown in BF16 at 2^0$'
  shown in BF16 at 2^0
  $ small high --set scaler.policy=fixed --set scaler.initial_scale=2^40 2>&1 | grep -o 'stayed at 2^40'
  stayed at 2^40
  $ fp16lab hist high > out 2>&1; grep -c '1099511627776\|1.09951e+12' out
  > grep -o 'loss scale 2^40, shown.*' out; grep -c ,1099511627776, high/steps.csv
  0
  loss scale 2^40, shown in FP16 at 2^40
  40

The casts of the whole run come first, as many as its file says. A sentence about all tensors says so where
some are left out.

  $ small low --set train.steps=4 --set scaler.policy=fixed --set scaler.initial_scale=2^-14
  $ fp16lab hist low --scale 2^9 --all | grep -o '^Casts.*zero, most in\|The casts of.*: '
  low: step 4, recorded at loss scale 2^-14, shown in FP16 at 2^9
  note: the recorded run rounds: what earlier casts of its backward passes made zero stays zero at every other scale, so the scale that fits may be larger than these gradients show
  Casts to FP16 made 1.9 % of the finite non-zero gradients zero, most in
  The casts of step 4 as they were recorded, at loss scale 2^-14: 
  $ fp16lab hist low --include fc1 --quiet | grep -o 'For the whole run.*\|This covers all.*\|^Casts to FP16'
  For the whole run and all tensors:
  Casts to FP16
  This covers all tensors.
  $ $python -c 'import json
  > rows = [json.loads(line) for line in open("low/histograms.jsonl")]
  > print([len({r["step"] for r in rows}), sum(r["after"]["zero"] - r["before"]["zero"] for r in rows),
  >   sum(sum(r["before"]["counts"]) for r in rows)])'
  [2, 65, 3457]
  $ fp16lab hist low --quiet --json > all.json
  $ of_json \
  > '[x["all_steps"]["steps"], *(x["all_steps"]["casts"][0][k] for k in ("underflow", "values"))]' < all.json
  [2, 65, 3457]
  $ of_json 'x["account"]["findings"]' < all.json > findings
  $ fp16lab hist low --quiet --json --include fc1 | of_json 'x["account"]["findings"]' | cmp - findings
