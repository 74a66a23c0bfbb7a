`fp16lab compare A B` says in what two runs, or two dumps, differ; with `--strict` a difference is exit code
5.

  $ . "$TESTDIR/setup.sh"

The same run twice has the same bits, on any number of threads.

  $ small first
  $ small second --threads 2
  $ fp16lab compare first second --strict -o both > table && sed -n '3,7p; $p' table; grep -c claim table
  The runs are the same, bit for bit: the states of all 40 steps, and everything recorded.
  
  Configuration: the same
  
  Steps: 40 in both
  Gradients: 0 of 6 tensors have different histograms
  0
  [1]
  $ ls both
  compare.csv
  compare.figure.json
  compare.json
  compare.png
  compare.svg
  draw.js
  $ cut -d , -f 11 both/compare.csv | sort | uniq -c
       40 1
        1 same_state
  $ cut -d , -f 2 both/compare.csv | tail -n +2 > losses && cut -d , -f 2 first/steps.csv | tail -n +2 |
  > cmp - losses

One bit of one state is found, and that the file is not what the run wrote.

  $ hash=$(sed -n 26p second/steps.csv | cut -d , -f 9)
  $ sed -i "s/$hash/${hash%?}$(echo ${hash#${hash%?}} | tr 0-9a-f 1-9a-f0)/" second/steps.csv
  $ fp16lab compare first second > table
  $ fp16lab compare first second --strict | cmp - table
  $ fp16lab compare first second --strict > table
  [5]
  $ grep 'diverge\|Damaged' table
  The runs differ: their states diverge at step 25 (1 of 40 common steps have different states). Records are damaged.
  Damaged: B: steps.csv is not what the run wrote (it has another SHA-256)

One pair tells nothing of quality.

  $ small seed2 --seed 2
  $ fp16lab compare first seed2 | grep 'pair\|Note'
  Note: the last evaluations are a single pair, too few for a verdict: that takes 3 seeds or more, and FP32's twin (fp16lab sweep --twin)
  Note: train.seed differs: the runs diverge for that reason alone, since initial weights and batches differ

Other settings, lengths and histograms; a killed run is compared as far as it came.

  $ small short --set train.steps=30 --set amp.level=O0 --set observe.histograms_every=0
  $ fp16lab compare first short | grep 'differ:\|level\|^Steps\|^loss \|Note'
  The runs differ: their states diverge at step 1 (30 of 30 common steps have different states). Only in A: 10 steps; only in B: 0. Differing records: evaluations, histograms.
  amp.level                 O1               O0
  Steps: 30 in both
  loss                  30         1            4.502e-05        23              0         -
  Note: B: no histograms recorded (observe.histograms_every was 0): gradients are not compared
  $ fp16lab compare first short --json --threshold 0.5 | of_json \
  > '[x["equal"], x["claims"][0]["verdict"], x["claims"][0]["claim"], x["histograms"]["rows_b"]]' \
  > '[x["steps"][k] for k in ("common", "only_a", "only_b", "first_state_difference")]' 'x["steps"]["loss"]'
  [false, "FAILS", "A and B have the same bits", 0]
  [30, 10, 0, 1]
  {"differing": 30, "first": 1, "in_one": 0, "largest": 4.5017118609935736e-05, "largest_step": 23, "above": 0, "first_above": null}
  $ sed -i 's/"finished"/"running"/' short/manifest.json
  $ truncate -s -9 short/steps.csv
  $ fp16lab compare short first | grep -o 'Note.*cut off\|Note.*running.*'
  Note: A: steps.csv: the last line is cut off
  Note: A: the run is running, its last step is 29

Records that are missing are a difference, from both sides, and each is named: a line less, half a line less,
an empty file, no file. The runs overflow at first, so that every file has rows.

  $ for run in whole cut; do small $run --set scaler.policy=dynamic --set scaler.initial_scale=2^40 \
  > --set observe.explain_overflow=true 2>/dev/null; done
  $ strict() { fp16lab compare $1 $2 --strict > table 2>&1; code=$?
  > sed -n 's/.*Differing records: //p; s/ but the//p; /missing/p' table | sort -u | xargs
  > [ $code = 5 ] && ! grep 'bit for bit' table; }
  $ fp16lab compare whole cut --strict | grep same,
  The runs are the same, bit for bit: the states of all 40 steps, and everything recorded.
  $ for file in histograms.jsonl overflows.jsonl culprits.jsonl evaluations.csv steps.csv
  > do cp cut/$file good
  > sed -i '$d' cut/$file; strict whole cut; strict cut whole; cp good cut/$file; truncate -s -3 cut/$file
  > strict whole cut
  > case $file in *jsonl) : > cut/$file; strict whole cut;; esac; rm cut/$file; strict whole cut
  > fp16lab compare whole cut > table 2>&1 || cat table; cp good cut/$file; done
  Damaged: B: histograms.jsonl has 17 rows, run wrote 18 histograms. Records are damaged.
  Damaged: A: histograms.jsonl has 17 rows, run wrote 18 histograms. Records are damaged.
  Damaged: B: histograms.jsonl has 17 rows, run wrote 18 histograms. Records are damaged.
  Damaged: B: histograms.jsonl has 0 rows, run wrote 18 histograms. Records are damaged.
  Damaged: B: histograms.jsonl is missing, with 18 rows histograms. Records are damaged.
  Damaged: B: overflows.jsonl has 22 rows, run wrote 23 overflows. Records are damaged.
  Damaged: A: overflows.jsonl has 22 rows, run wrote 23 overflows. Records are damaged.
  Damaged: B: overflows.jsonl has 22 rows, run wrote 23 overflows. Records are damaged.
  Damaged: B: overflows.jsonl has 0 rows, run wrote 23 overflows. Records are damaged.
  Damaged: B: overflows.jsonl is missing, with 23 rows overflows. Records are damaged.
  Damaged: B: culprits.jsonl has 22 rows, run wrote 23 culprits. Records are damaged.
  Damaged: A: culprits.jsonl has 22 rows, run wrote 23 culprits. Records are damaged.
  Damaged: B: culprits.jsonl has 22 rows, run wrote 23 culprits. Records are damaged.
  Damaged: B: culprits.jsonl has 0 rows, run wrote 23 culprits. Records are damaged.
  Damaged: B: culprits.jsonl is missing, with 23 rows culprits. Records are damaged.
  Damaged: B: evaluations.csv has 0 rows, run wrote 1 evaluations. Records are damaged.
  Damaged: A: evaluations.csv has 0 rows, run wrote 1 evaluations. Records are damaged.
  Damaged: B: evaluations.csv has 0 rows, run wrote 1 evaluations. Records are damaged.
  fp16lab: error: cut/evaluations.csv is missing
  fp16lab: error: cut/evaluations.csv is missing
  Damaged: B: steps.csv has 39 rows, run wrote 40
  Damaged: A: steps.csv has 39 rows, run wrote 40
  Damaged: B: steps.csv has 39 rows, run wrote 40
  fp16lab: error: cut/steps.csv is missing
  fp16lab: error: cut/steps.csv is missing
  $ fp16lab compare whole cut --strict | grep same,
  The runs are the same, bit for bit: the states of all 40 steps, and everything recorded.

Both lack the same: equal to each other, but not what the runs recorded.

  $ rm whole/histograms.jsonl cut/histograms.jsonl
  $ strict whole cut; grep 'Records are' table
  Damaged: A: histograms.jsonl is missing, with 18 rows Damaged: B: histograms.jsonl is missing, with 18 rows
  The states of all 40 steps are the same; other records differ. Records are damaged.

Tensors of two seeds: their exponents are near each other, since it is the same network on the same data.

  $ fp16lab compare first seed2 --json | of_json 'x["histograms"]["unmatched_rows"]' \
  > '[(t["zeros_a"]["after"] >= t["zeros_a"]["before"], 5 > t["mean_distance"] <= t["largest_distance"])
  > for t in x["histograms"]["tensors"]]'
  0
  [[true, true], [true, true], [true, true], [true, true], [true, true], [true, true]]

Dumps are compared tensor by tensor, in the order of A. 1/3 in FP16 is 3555, 1 is 3c00 and its second
neighbour 3c02: compare separates what a cast alone explains from the rest.

  $ arrays wide.npz 'z=<f4 1,2 1/3 -2' 'a=<f4 2 1 1/3' 'module.b=<f4 1 5' 'ids=<i2 2 hex 01000200' \
  > 'mine=<f4 1 1'
  $ arrays narrow.npz 'a=<f2 2 hex 023c 5535' 'b=<f4 1,1 5' 'ids=<i2 2 hex 01000300' 'yours=<f4 1 1' \
  > 'z=<f2 1,2 hex 5535 00c0'
  $ fp16lab compare wide.npz narrow.npz --strict --all -o dumps
  A: wide.npz
  B: narrow.npz
  3 of 3 tensors differ. A cast alone explains 1 of them: rounding A to FP16 gives B. The first in the order of A that it does not explain is a: 1 of 2 elements by more than a cast, first [0], A 3f800000 = 1, B 3c02 = 1.00195312; at most 2 ulps of FP16, relative L2 0.00185. No relative L2 is above 0.01. Only in A: 1 tensor; only in B: 1 tensor. Not compared, because shapes or types do not match: 1.
  
  tensor  type        elements  differing beyond cast    largest       ulps   rel. L2 1 - cosine
  z       FP32 FP16          2          1           0   8.14e-05          0  4.01e-05   7.84e-10
  a       FP32 FP16          2          2           1    0.00195          2   0.00185   2.17e-07
  b       FP32 1 in A, FP32 1x1 in B: other shapes
  ids     i16                2          1           1          0          0         0          -
  mine    only in A: FP32 1
  yours   only in B: FP32 1
  
  Note: "module." and "_orig_mod.", which torch's wrappers add, were left out of names
  [5]
  $ of_json \
  > '[[t[k] for k in ("tensor", "beyond_cast", "ulps", "ulps_of", "trouble")] for t in x["tensors"]]' \
  > '[x["claims"][0]["verdict"], x["tensors"][3]["first"]["b"]]' < dumps/compare.json
  [["z", 0, 0, "f16", ""], ["a", 1, 2, "f16", ""], ["b", 0, 0, "", "other shapes"], ["ids", 1, 0, "", ""], ["mine", 0, 0, "", ""], ["yours", 0, 0, "", ""]]
  ["FAILS", 3.0]
  $ cut -d , -f 1,7 dumps/compare.csv | xargs
  tensor,differing z,1 a,2 b,0 ids,1 mine,0 yours,0
  $ fp16lab compare wide.npz wide.npz --strict | grep bit
  All 5 tensors that both have are the same, bit for bit.
  $ fp16lab compare wide.npz narrow.npz --include z --strict | grep cast
  The one tensor that both have differs. A cast alone explains all of it: rounding A to FP16 gives B. The first in the order of A that differs is z: 1 of 2 elements, first [0, 0], A 3eaaaaab = 0.333333343, B 3555 = 0.333251953, relative L2 4.01e-05. No relative L2 is above 0.01.
  tensor  type        elements  differing beyond cast    largest       ulps   rel. L2 1 - cosine

A loss scale that one of them carries is guessed, and taken out.

  $ arrays plain.npy 'x=<f4 2 0.75 -3' scaled.npy 'x=<f4 2 0.75*65536 -3*65536'
  $ fp16lab compare plain.npy scaled.npy | grep scale-b
  Note: every tensor of B is about 2^16 times the other one: a loss scale? --scale-b 2^16 takes it out
  $ fp16lab compare plain.npy scaled.npy --scale-b 2^16 --strict | grep 'bit\|Note'
  The one tensor that both have is the same, bit for bit.
  Note: B: a loss scale of 2^16 is taken out

Folders of steps, by number; words of BF16 are taken as such where the user says so.

  $ mkdir x y; for step in 9 10; do arrays x/step-$step.npz 'w=<u2 2 hex 403f40c0' y/step-$step.npz \
  > 'w=<u2 2 hex 403f41c0'; done
  $ fp16lab compare x y --as bf16 | grep 'first\|^step'
  2 of 2 tensors differ. The first in the order of A that differs is step-9: w: 1 of 2 elements, first [1], A c040 = -3, B c041 = -3.015625; at most 1 ulp of BF16, relative L2 0.00503. No relative L2 is above 0.01.
  step-9: w   BF16          2          1           1     0.0156          1   0.00503   7.44e-07
  step-10: w  BF16          2          1           1     0.0156          1   0.00503   7.44e-07
  $ fp16lab compare x y | grep -o 'first \[1\].*'
  first [1], A c040 = 49216, B c041 = 49217. No relative L2 is above 0.01.

`--tensors` compares the weights of runs.

  $ for run in c1 c2; do small $run --set checkpoint.every=20; done
  $ small c3 --set checkpoint.every=20 --set amp.level=O0
  $ fp16lab compare c1 c2 --tensors --strict | grep bit
  All 46 tensors that both have are the same, bit for bit.
  $ fp16lab compare c1 c3 --tensors --include 'fc1.*' | grep 'The first'
  4 of 4 tensors differ. The first by name that differs is checkpoints/step-000020: fc1.bias: 16 of 16 elements, first [0], A 3d9ab5de = 0.0755421966, B 3d9aba98 = 0.0755512118; at most 29655 ulps of FP32, relative L2 0.000185. No relative L2 is above 0.01.

Mistakes are one line.

  $ mkdir empty; refused compare nowhere else; refused compare empty empty; refused compare empty
  > refused compare empty empty third
  fp16lab: error: nowhere: no such run folder or dump
  fp16lab: error: empty: neither a run folder (no manifest.json) nor a folder of dumps (no .npy, .npz or .safetensors file)
  fp16lab: error: B is required; see fp16lab compare --help
  fp16lab: error: compare: unexpected argument 'third'
  $ for more in '--threshold -1' '--scale-a 2'; do refused compare first seed2 $more; done
  fp16lab: error: --threshold: '-1': expected a finite number, 0 or more
  fp16lab: error: --all, --as, --include, --exclude, --scale-a and --scale-b are for dumps; --tensors compares the weights and checkpoints of run folders as dumps
  $ for more in '--scale-a 0' '--include v'; do refused compare x y $more; done
  fp16lab: error: --scale-a 0: expected a finite number above 0, such as 2^15
  fp16lab: error: --include v: no tensor has such a name; there are w
