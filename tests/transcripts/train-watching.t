Those who watch `fp16lab train`: `--explain-overflow`, `--live` and `--tensorboard` change no bit.

  $ . "$TESTDIR/setup.sh"
  $ small_config
  $ train() { out=$1; shift; fp16lab train -c small.toml -o $out --set train.steps=8 --set \
  > scaler.policy=dynamic \
  > --set scaler.initial_scale=2^24 --set checkpoint.every=2 --set train.accumulate=2 --set \
  > observe.histograms_every=2 "$@" > summary; }

Every overflow has its culprit: the first one whole, of those alike one line between them, both before the
account.

  $ train plain --quiet; ls plain/culprits.jsonl; train explained --explain-overflow 2> told
  > grep explain explained/config.toml
  ls: cannot access 'plain/culprits.jsonl': No such file or directory
  explain_overflow = true
  $ column state_hash plain/steps.csv > a; column state_hash explained/steps.csv | cmp - a
  > cmp plain/overflows.jsonl explained/overflows.jsonl
  $ sed -n '/culprit\|Advice\|in steps\|Next/p' told
  step 1, backward, micro-batch 0: the backward of cast in loss gave loss.prediction (20, 10)[0, 2] = inf (f16) of finite operands, 66618.9 in FP32; |gradient| in [2.17e+04, 3.91e+05]. Advice: S = 2^19 makes every gradient of this step finite, S = 2^20 does not (checked: its backward passes were repeated); for this tensor a loss scale lower by 3 binades (S = 2^24 -> 2^21) would do
  step 4, backward, micro-batch 0: the backward of linear (matmul) in fc2 gave fc2.weight (10, 16)[1, 8] = -inf (f16) of finite operands, -68620.5 in FP32; |gradient| in [2.39e+03, 4.9e+04], |relu| in [0.0173, 2.02], 160 of 320 zero. Advice: S = 2^20 makes every gradient of this step finite, S = 2^21 does not (checked: its backward passes were repeated); FP32 would have saved this tensor too: amp.excluded = ["fc2"] or amp.black = ["linear"]
  the same as in step 1 (the backward of cast in loss gave loss.prediction) in steps 2 to 3, at scales from 2^23 down to 2^22
  fp16lab: explained: Next: fp16lab report explained (figures and a page)
  $ for file in overflows culprits; do $python -c 'import json, sys
  > print([(r["step"], r["loss_scale"]) for r in map(json.loads, sys.stdin)])' < explained/$file.jsonl
  > done | uniq -c
        2 [(1, 16777216.0), (2, 8388608.0), (3, 4194304.0), (4, 2097152.0), (5, 1048576.0)]
  $ $python -c 'import json, sys
  > for r in map(json.loads, sys.stdin):
  >   print(*(r[k] for k in ("step", "pass", "verdict", "op", "tensor")), len(r["shape"]) == len(r["index"]))' \
  > < explained/culprits.jsonl
  1 backward lower_scale cast loss.prediction True
  2 backward lower_scale cast loss.prediction True
  3 backward lower_scale cast loss.prediction True
  4 backward lower_scale linear fc2.weight True
  5 backward lower_scale linear fc2.weight True
  $ train quiet --explain-overflow --quiet; train key --set observe.explain_overflow=true --quiet
  $ cmp quiet/culprits.jsonl explained/culprits.jsonl; cmp key/culprits.jsonl explained/culprits.jsonl

A resumed run has the culprits of the whole one; without a checkpoint it begins again, and a replaced run
takes the file away.

  $ train resumed --explain-overflow --quiet --set train.steps=4
  > rm resumed/checkpoints/step-000004.safetensors
  $ fp16lab train --resume -o resumed --set train.steps=8 --quiet > summary
  > cmp resumed/culprits.jsonl explained/culprits.jsonl
  $ rm -r resumed/checkpoints; train resumed --force --quiet; ls resumed/culprits.jsonl
  ls: cannot access 'resumed/culprits.jsonl': No such file or directory
  [2]

The panel is for terminals, unless it is forced; then the cursor goes and comes back, also by an interrupt: at
once, for a second Ctrl-C that kills, and at the end.

  $ escape=$(printf '\033')
  $ train line --live 2> told; grep -c "$escape" told; grep -c 'step 8/8' told
  0
  1
  $ train panel --live=always --explain-overflow 2> told
  > grep -o "$escape\[?25." told | cut -c 2- | sort | uniq -c; tail -c 6 told | cut -c 2-
        1 [?25h
        1 [?25l
  [?25h
  $ sed -n 's/.*\(gradients of step 8:\|step 8\/8\|skipped [0-9]*\|% lost\).*/\1/p' told | sort -u
  > grep -c Advice told
  % lost
  gradients of step 8:
  skipped 1
  skipped 5
  step 8/8
  2
  $ column state_hash panel/steps.csv | cmp - a; grep -c '"state":"finished"' summary
  > train none --live=always --quiet
  1
  $ refused train -c small.toml -o bad --live=sometimes
  fp16lab: error: --live: 'sometimes': known are auto, always
  $ (exec env --default-signal=INT fp16lab train -c small.toml -o long --set train.steps=1000000 \
  > --live=always > summary 2> told) & pid=$!
  $ until [ -e long/steps.csv ] && [ $(wc -l < long/steps.csv) -gt 4 ]; do kill -0 $pid || break; sleep 0.01
  > done; kill -INT $pid; wait $pid
  [130]
  $ grep -o "$escape\[?25." told | cut -c 2- | tail -2
  [?25h
  [?25h

Event files have every step and every observed tensor; a resumed run writes another one.

  $ train run --tensorboard board --quiet; ls board | wc -l; tags() { grep -a -o "$1" $2 | wc -l; }
  > first=board/$(ls board)
  1
  $ grep -a -c 'brain.Event:2' $first; for tag in loss_scale underflow_rate exponents/fc1.weight \
  > exponents/loss.prediction \
  > evaluation/accuracy; do tags $tag $first; done
  1
  8
  5
  3
  5
  1
  $ cp $first before; fp16lab train --resume -o run --set train.steps=10 --tensorboard board --quiet \
  > > summary; cmp before $first
  $ ls board | wc -l; tags loss_scale board/$(ls board | grep -v $(basename $first)); touch file
  > train bad --tensorboard file/board --quiet
  2
  2
  fp16lab: error: cannot make the folder file/board: Not a directory
  [1]
