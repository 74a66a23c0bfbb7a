`fp16lab train` with the keys of mixed precision: ops counted, overflows by name, exported weights, and what
does not go together.

  $ . "$TESTDIR/setup.sh"
  $ small_config
  $ sets() { for set; do printf ' --set %s' "$set"; done; }

One micro-batch of 64-16-10 at O1: fc1 casts its input, weight and bias, fc2 the latter two, the loss its
logits. The table is not on stdout, and counting changes no bit.

  $ fp16lab train -c small.toml -o run --op-stats > summary 2> told; cat run/op_stats.csv
  layer,op,f16,bf16,f32,casts_to_low,casts_to_f32
  fc1,linear,1,0,0,3,0
  ,relu,1,0,0,0,0
  fc2,linear,1,0,0,2,0
  loss,softmax_cross_entropy,0,0,1,0,1
  $ sed -n '/^ops/,/^advice/p' told; grep -c '"state":"finished"' summary
  ops of step 1, forward passes only:
  op                     layer     FP16  BF16  FP32  casts to 16 bits  casts to FP32
  linear                 2 layers     2     0     0                 5              0
                         fc1          1     0     0                 3              0
                         fc2          1     0     0                 2              0
  relu                   -            1     0     0                 0              0
  softmax_cross_entropy  loss         0     0     1                 0              1
  total                               3     0     1                 5              1
  advice: fc1: M = 20 is not a multiple of 8, which FP16 products need to fill tensor cores (on an A100 the guides quote 16): 24 would be right
  1
  $ fp16lab train -c small.toml -o quiet --op-stats --quiet > summary; cmp quiet/op_stats.csv run/op_stats.csv
  $ small plain; ls plain/op_stats.csv; column state_hash run/steps.csv > a
  > column state_hash plain/steps.csv | cmp - a
  ls: cannot access 'plain/op_stats.csv': No such file or directory
  $ small wide --op-stats --set amp.level=O0; grep fc1 wide/op_stats.csv
  fc1,linear,0,0,1,0,0
  $ small resumed --set checkpoint.every=10 --set train.steps=20
  $ fp16lab train --resume -o resumed --op-stats --set train.steps=30 2>&1 | grep '^ops'
  > ls resumed/op_stats.csv
  ops of step 21, forward passes only:
  resumed/op_stats.csv

The advice names overflows by step and name, as many as steps.csv says, and separates a loss that is infinite
before any gradient is: a loss near ln 10 times the largest FP16 number is infinite in FP16, the seed, that
number itself, is not.

  $ small over --set scaler.policy=dynamic --set scaler.initial_scale=2^24; head -1 over/overflows.jsonl
  {"step":1,"kind":"gradient","loss_scale":16777216.0,"optimizers":["model"],"parameters":["fc1.weight","fc1.bias","fc2.weight","fc2.bias"]}
  $ column found_inf over/steps.csv | grep -n 1 | cut -d : -f 1 > found
  > column loss_scale over/steps.csv > scales
  $ grep -o '"step":[0-9]*' over/overflows.jsonl | cut -d : -f 2 | cmp - found
  $ sed 's/.*"loss_scale":\([0-9]*\).*/\1/' over/overflows.jsonl > told; while read step
  > do sed -n ${step}p scales; done < found | cmp - told
  $ wc -l < found; wc -c < run/overflows.jsonl
  7
  0
  $ loss='amp.dialect=mindspore amp.level=O3 amp.low_loss=true scaler.policy=fixed scaler.initial_scale=65504'
  $ small loss $(sets $loss train.steps=5 train.batch_size=1)
  $ cut -d , -f 2,5- loss/overflows.jsonl | uniq -c; column found_inf loss/steps.csv | xargs
        1 "kind":"loss","parameters":[]}
        1 "kind":"both","parameters":["fc2.weight"]}
        1 "kind":"loss","parameters":[]}
        2 "kind":"both","parameters":["fc2.weight"]}
  0 1 0 1 1

Weights are exported in the type that is asked for, with and without checkpoints, which keep the exact state.

  $ header() { $python -c 'import json, struct, sys
  > data = open(sys.argv[1], "rb").read()
  > x = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
  > print(x["__metadata__"].get("step"), x["fc1.weight"]["dtype"], x["fc1.weight"]["shape"], len(x))' $1; }
  $ for type in f16 bf16 f64; do small $type --set amp.save_dtype=$type --set checkpoint.every=15
  > header $type/weights.safetensors; done
  40 F16 [16, 64] 5
  40 BF16 [16, 64] 5
  40 F64 [16, 64] 5
  $ header f16/checkpoints/step-000040.safetensors | cut -d ' ' -f 2; small end --set amp.save_dtype=f16
  F32
  $ cmp end/weights.safetensors f16/weights.safetensors; ls run/weights.safetensors
  ls: cannot access 'run/weights.safetensors': No such file or directory
  [2]

An optimizer that divides by another number than the loss scale is noted, and runs.

  $ kept() { fp16lab train -c small.toml -o kept --force $(sets scaler.policy=fixed \
  > scaler.initial_scale=1024 train.steps=3 "$@") 2>&1 > summary | grep note; }
  $ kept scaler.drop_overflow_update=false optimizer.loss_scale=1024
  [1]
  $ kept scaler.drop_overflow_update=false optimizer.loss_scale=1
  note: scaler.drop_overflow_update = false leaves the loss scale 2^10 in the gradients and optimizer.loss_scale = 1: every gradient is 1024 times what it would be
  $ kept optimizer.loss_scale=1024
  note: the scaler leaves no scale in the gradients and optimizer.loss_scale = 1024: every gradient is 0.0009765625 times what it would be

Scales of layers: rows carry the scale of their tensor; in FP32 they change no number.

  $ small layers $(sets scaler.policy=groups scaler.initial_scale=16 'scaler.groups=fc1=2^10,*=4' \
  > train.steps=3 observe.histograms_every=1)
  $ column loss_scale layers/steps.csv | xargs; grep groups layers/config.toml
  16 16 16
  policy = "groups"
  groups = ["fc1=2^10", "*=4"]
  $ sed 's/.*"tensor":"\([a-z0-9.]*\)".*"loss_scale":\([0-9.]*\),.*/\1 \2/' layers/histograms.jsonl | sort |
  > uniq -c
        3 fc1.bias 16384.0
        3 fc1.linear 16384.0
        3 fc1.weight 16384.0
        3 fc2.bias 64.0
        3 fc2.input 64.0
        3 fc2.linear 64.0
        3 fc2.weight 64.0
        3 loss.prediction 16.0
  $ common="$(sets amp.level=O0 scaler.initial_scale=2 train.steps=12)"
  $ small one $common --set scaler.policy=fixed
  > small ada $common --set scaler.policy=ada-loss --set scaler.u_min=0.01
  $ small each $common --set scaler.policy=layerwise --set scaler.growth_interval=2 --set \
  > scaler.groups=fc1=2^9,fc2=0.125
  $ for run in ada each; do for name in loss grad_norm loss_scale skipped; do column $name one/steps.csv > a
  > column $name $run/steps.csv | cmp - a; done
  > grep -o '"loss_scale":[0-9.]*' $run/histograms.jsonl | sort -u | wc -l; done
  3
  5

What cannot go together is refused before anything is written.

  $ while read sets; do (set -f; refused train -c small.toml -o new $(sets $sets)); done <<'END'
  > amp.dtype=bf16 backend.tensor_core=volta
  > scaler.policy=fixed scaler.drop_overflow_update=false train.clip_norm=1
  > amp.level=O2
  > amp.white=relu amp.black=relu
  > scaler.policy=groups
  > scaler.policy=groups scaler.groups=fc9=8
  > scaler.policy=layerwise scaler.groups=fc1:8
  > scaler.policy=torch scaler.groups=fc1=8
  > scaler.policy=ada-loss backend.device=auto train.graph=true
  > scaler.policy=ada-loss amp.dialect=paddle amp.level=O2
  > scaler.policy=ada-loss scaler.drop_overflow_update=false
  > END
  fp16lab: error: small.toml with --set: amp.dtype = "bf16" with backend.tensor_core = "volta": these tensor cores have no bf16 products; expected one of ampere, ada, hopper, * (glob)
  fp16lab: error: small.toml with --set: train.clip_norm = 1 with scaler.drop_overflow_update = false: gradients keep their loss scale then, and clipping them would depend on it; must be 0
  fp16lab: error: small.toml with --set: amp.level = "O2": amp.dialect = "torch" has O0, O1; for O2 set amp.dialect to paddle, mindspore or apex
  fp16lab: error: small.toml with --set: amp.white = "relu": the op is in amp.black too; an op can be in one list only
  fp16lab: error: small.toml with --set: scaler.policy = "groups": it scales the layers that scaler.groups names, and there are none; expected patterns and scales, such as ["fc1=2^8", "*=2^4"]
  fp16lab: error: scaler.groups = "fc9=8": it matches no weight that an earlier pattern has not taken; weights: known are fc1.weight, fc2.weight
  fp16lab: error: small.toml with --set: scaler.groups = "fc1:8": expected PATTERN=SCALE, such as "fc1=2^8" or "*=16", with a scale from 2^-126 to 2^127
  fp16lab: error: --set: scaler.groups=fc1=8: scaler.policy = torch does not read it; layerwise, groups do
  fp16lab: error: small.toml with --set: train.graph = true with scaler.policy = "ada-loss": scales of layers are decided by the host in the middle of a step, which a recorded one cannot wait for; expected train.graph = false
  fp16lab: error: small.toml with --set: scaler.policy = "ada-loss": gradients of this level add up in f16, and dividing them by a layer's scale would round; expected amp.master_gradients = true, or a level whose gradients add up in f32
  fp16lab: error: small.toml with --set: scaler.drop_overflow_update = false: no gradient is checked then, but policy "ada-loss" answers to overflows; use "fixed" or "none" with it
  $ ls -d new
  ls: cannot access 'new': No such file or directory
  [2]
