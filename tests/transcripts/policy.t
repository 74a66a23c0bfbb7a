`fp16lab policy` says what a loss-scale policy does on a trace of overflows, or on magnitudes of gradients.

  $ . "$TESTDIR/setup.sh"
  $ policy() { fp16lab policy --policy "$@"; }

A line for each step of the trace: F is finite, O an overflow. An alias is the same policy.

  $ policy torch --set growth_interval=2 --set scaler.initial_scale=2^4 --trace FFOF | tee torch
  step,found_inf,scale,log2_scale,skipped
  1,0,16,4,0
  2,0,32,5,0
  3,1,16,4,1
  4,0,16,4,0
  $ policy dynamic --set growth_interval=2 --set initial_scale=2^4 --trace FFOF | cmp - torch

A trace on the standard input may have blanks and lines, and be long.

  $ policy keras2 --set growth_interval=3 --trace FFFOFFFF > direct
  $ printf 'FFF O\r\nFF\n\tFF\n' | policy keras2 --set growth_interval=3 --trace - | cmp - direct
  $ policy keras2 --trace - < /dev/null
  step,found_inf,scale,log2_scale,skipped
  $ printf 'FFF\nFOX\n' | refused policy --policy keras2 --trace -
  fp16lab: error: policy: --trace: 'X' at line 2, position 3: expected F (finite) or O (overflow)
  $ head -c 100000 /dev/zero | tr '\0' F | policy torch --trace - | tail -1
  100000,0,7.378697629483821e+19,66,0

Magnitudes decide about overflow at the scale of each step. 65520 is the first that rounds to infinity;
65519.99 is finite in FP32 before it is rounded to FP16, but 65519.999 is 65520 there already. 1 * 2^16
overflows, so torch falls until 1 * 2^15 fits. popart needs no overflow: a single gradient in the upper bin
halves the scale.

  $ policy fixed --set initial_scale=1 --amax '65519.99, 65519.999 65520,0,inf,nan,2^-30' | cut -d , -f 2 |
  > xargs
  found_inf 0 1 1 0 1 1 0
  $ policy torch --amax 1,1,1.9999,1 | tee torch | cut -d , -f 2,4 | xargs
  found_inf,log2_scale 1,15 0,15 1,14 0,14
  $ printf '1 1\n1.9999,1\n' | policy torch --amax - | cmp - torch
  $ policy popart --set initial_scale=1 --amax 9000,9000,1,1 | cut -d , -f 2,4 | xargs
  found_inf,log2_scale 0,-1 0,-2 0,-1 0,0

Every policy takes magnitudes, eight of them here.

  $ fp16lab policy --list --json > list.json
  $ for name in $(of_json '" ".join(p["name"] for p in x["policies"])' < list.json | tr -d '"')
  > do policy $name --quiet --amax 2^-4,2^-3,0.5,7,1e6,0,2^-20,2^-4 | wc -l; done | sort | uniq -c
       38 9

It says where the rule ends the run, and where unscaling rounds.

  $ policy deepspeed --set initial_scale=2 --set hysteresis=1 --trace FOOFF
  step,found_inf,scale,log2_scale,skipped
  1,0,2,1,0
  2,1,1,0,1
  3,1,1,0,1
  fp16lab: policy deepspeed ends the run at step 3: an overflow at scaler.min_scale, with scaler.raise_error_at_min_scale = true
  [4]
  $ legacy() { policy paddle-static-legacy --set initial_scale=1024 --trace OO "$@" | tail -1; }
  $ legacy
  fp16lab: warning: scaler.backoff_factor = 0.8 is not a power of two: multiplying by S and by 1/S then rounds every gradient twice; scaler.power_of_two = "round_down" keeps the rule and uses the power of two below its scale
  2,1,819.2000122070312,9.678071927,1
  $ legacy --set power_of_two=any
  2,1,819.2000122070312,9.678071927,1
  $ legacy --set power_of_two=round_down
  2,1,512,9,1
  $ policy chainer --quiet --trace O | wc -l
  2

A configuration gives policy and parameters; policy says what it meant for another policy.

  $ printf '[scaler]\npolicy = "megatron"\ninitial_scale = 1024\nhysteresis = 1\n' > c.toml
  $ fp16lab policy -c c.toml --trace O | tail -1
  1,1,512,9,1
  $ fp16lab policy -c c.toml --set hysteresis=2 --trace O | tail -1
  1,1,1024,10,1
  $ fp16lab policy -c c.toml --policy torch --trace O | tail -1
  note: scaler.initial_scale = 1024.0 was meant for the policy megatron; torch uses its own default
  1,1,32768,15,1

The list has every policy with its source, and its parameters with kind, bounds and help. `fp16lab list` has
the same.

  $ fp16lab policy --list --policy metaseq
  metaseq
    as fairseq, but growth_interval is multiplied and divided with S, and S stays where it would fall below min_loss_scale
    source: facebookresearch/metaseq metaseq/optim/dynamic_loss_scaler.py, DynamicLossScaler
      initial_scale                   2^2  scale of the first step; a finite number from 2^-126 up to 2^127
      growth_factor                     2  the scale is multiplied by this when it grows and divided by it when it backs off; a finite number above 1
      growth_interval                 256  good steps until the scale grows; an integer from 1 up to 2147483647
      tolerance                         0  share of overflows among the steps since the last change of scale, from which an overflow backs off; a finite number from 0 up to 1
      min_loss_scale                 2^-5  the scale stays where it would fall below this; a finite number from 0 up to 2^127
      finite_guard                  false  the scale stays where it would become 0 or infinite; true or false
      min_scale                         0  floor of the scale; 0: none; a finite number from 0 up to 2^127
      max_scale                         0  ceiling of the scale; 0: none; a finite number from 0 up to 2^127
  $ fp16lab policy --list --json --policy dynamic |
  > of_json '[(p["name"], p["aliases"], p["parameters"][3]) for p in x["policies"]]'
  [["torch", ["dynamic"], {"name": "growth_interval", "kind": "integer", "default": 2000, "expected": "an integer from 1 up to 2147483647", "minimum": 1, "minimum_excluded": false, "maximum": 2147483647, "maximum_excluded": false, "help": "good steps until the scale grows"}]]
  $ fp16lab list --json | of_json 'x["policies"]' > listed && of_json 'x["policies"]' < list.json |
  > cmp - listed
  $ of_json '[p["name"] for p in x["policies"] if not (p["rule"] and p["source"])]' \
  > '[q for p in x["policies"] for q in p["parameters"]
  > if not (q["help"] and q["expected"]) or q["default"] is None]' \
  > '" ".join(p["name"] for p in x["policies"])' < list.json
  []
  []
  "none fixed torch paddle paddle-2.2 paddle-amp-scaler paddle-static paddle-static-legacy mindspore-fixed mindspore mindspore-cell mindspore-amp apex apex-fp16-utils apex-hysteresis deepspeed deepspeed-fused deepspeed-unfused megatron colossalai fastllm fairseq fairseq-train metaseq openseq2seq-backoff tf1-exponential keras2 keras3 jmp flax chainer mxnet openseq2seq-logmax popart lost-mass ada-loss layerwise groups"

What a user of a peer gets without saying anything, from the peers' sources. Columns: the scale's first value,
growth and backoff factor (null: the growth factor divides), growth interval, floor, ceiling, guard, bad
steps, hysteresis.

  $ of_json \
  > '"\n".join(" ".join([p["name"]] + [json.dumps(d[k]) if k in d else "-" for k in ("initial_scale",
  > "growth_factor", "backoff_factor", "growth_interval", "min_scale", "max_scale", "finite_guard",
  > "bad_steps", "hysteresis")])
  > for p in x["policies"] for d in [{q["name"]: q["default"] for q in p["parameters"]}])' < list.json |
  > sed 's/\\n/\n/g; s/"//g'
  none - - - - 0.0 0.0 true - -
  fixed 65536.0 - - - 0.0 0.0 true - -
  torch 65536.0 2.0 0.5 2000 0.0 0.0 true - -
  paddle 65536.0 2.0 0.5 2000 0.0 0.0 false 1 -
  paddle-2.2 32768.0 2.0 0.5 1000 0.0 0.0 false 2 -
  paddle-amp-scaler 32768.0 2.0 0.5 1000 0.0 0.0 false 1 -
  paddle-static 65536.0 2.0 0.5 2000 1.0 0.0 true 1 -
  paddle-static-legacy 32768.0 2.0 0.8 1000 1.0 0.0 true 2 -
  mindspore-fixed 128.0 - - - 0.0 0.0 true - -
  mindspore 16777216.0 2.0 - 2000 1.0 0.0 false - -
  mindspore-cell 16777216.0 2.0 - 2000 1.0 0.0 false - -
  mindspore-amp 16777216.0 2.0 - 2000 1.0 0.0 true - -
  apex 65536.0 2.0 0.5 2000 0.0 16777216.0 true - -
  apex-fp16-utils 4294967296.0 2.0 - 1000 1.0 0.0 false - -
  apex-hysteresis 4294967296.0 2.0 0.5 1000 0.0 0.0 true - 2
  deepspeed 65536.0 2.0 - 1000 1.0 0.0 false - 2
  deepspeed-fused 4294967296.0 2.0 - 1000 1.0 0.0 false - 1
  deepspeed-unfused 65536.0 2.0 - 1000 0.25 0.0 false - 1
  megatron 4294967296.0 2.0 0.5 1000 1.0 0.0 false - 2
  colossalai 65536.0 2.0 0.5 1000 0.0 0.0 false - 2
  fastllm 65536.0 2.0 0.5 1000 1.0 0.0 false - 2
  fairseq 32768.0 2.0 - 2000 0.0 0.0 false - -
  fairseq-train 128.0 2.0 - 16384 0.0 0.0 false - -
  metaseq 4.0 2.0 - 256 0.0 0.0 false - -
  openseq2seq-backoff 16384.0 2.0 - 2000 1.0 16384.0 true - -
  tf1-exponential 32768.0 2.0 0.8 1000 1.0 0.0 true 2 -
  keras2 32768.0 2.0 - 2000 1.0 0.0 true - -
  keras3 32768.0 2.0 - 2000 0.0 0.0 false - -
  jmp 32768.0 2.0 - 2000 1.0 0.0 true - -
  flax 65536.0 2.0 0.5 2000 1.1754943508222875e-38 0.0 true - -
  chainer 1.0 - 0.5 1000 1.0 65504.0 true - -
  mxnet 65536.0 2.0 0.5 2000 0.0 16777216.0 true - -
  openseq2seq-logmax 1.0 - - - 1.0 16384.0 true - -
  popart 1.0 2.0 0.5 - 0.0 0.0 true - -
  lost-mass 65536.0 - - - 5.960464477539063e-08 549755813888.0 true - -
  ada-loss 1.0 - - - 0.0 0.0 true - -
  layerwise 1.0 2.0 0.5 10000 1.1754943508222875e-38 1.7014118346046923e+38 true - -
  groups 1.0 1.0006933874625807 0.7071067811865476 1 0.0 0.0 true - -

Mistakes are one line.

  $ refused policy
  fp16lab: error: policy: expected --policy NAME, or --config FILE with a scaler.policy (--list shows all policies)
  $ refused policy --policy torch
  fp16lab: error: policy: expected either --trace FFOFF... or --amax LIST (or --list)
  $ refused policy --policy torch --trace F --amax 1
  fp16lab: error: policy: expected either --trace FFOFF... or --amax LIST (or --list)
  $ refused policy --policy megatorn --trace F
  fp16lab: error: policy: scaler.policy = "megatorn": known are none, fixed, torch, *; did you mean 'megatron'? (glob)
  $ for trace in FFxO 'F F' ffo; do refused policy --policy torch --trace "$trace"; done
  fp16lab: error: policy: --trace: 'x' at position 3: expected F (finite) or O (overflow)
  fp16lab: error: policy: --trace: byte 0x20 at position 2: expected F (finite) or O (overflow)
  fp16lab: error: policy: --trace: 'f' at position 1: expected F (finite) or O (overflow)
  $ for set in hysteresis=2 growth_intervall=2 growth_interval growth_interval=2.5 growth_interval=true \
  > backoff_factor=nan \
  > initial_scale=0.1 finite_guard=maybe power_of_two=up
  > do refused policy --policy torch --set $set --trace F; done
  fp16lab: error: policy: --set hysteresis=2: policy torch has no parameter 'hysteresis': known are initial_scale, growth_factor, backoff_factor, growth_interval, min_scale, max_scale, finite_guard, power_of_two
  fp16lab: error: policy: --set growth_intervall=2: policy torch has no parameter 'growth_intervall': known are initial_scale, growth_factor, backoff_factor, growth_interval, min_scale, max_scale, finite_guard, power_of_two; did you mean 'growth_interval'?
  fp16lab: error: policy: --set growth_interval: expected NAME=VALUE, such as growth_interval=100
  fp16lab: error: policy: scaler.growth_interval = 2.5: must be an integer from 1 up to 2147483647
  fp16lab: error: policy: --set growth_interval=true: 'true' is not a number: a digit is missing
  fp16lab: error: policy: scaler.backoff_factor = nan: must be a finite number above 0 and below 1
  fp16lab: error: policy: scaler.initial_scale = 0.1: must be an FP32 number; the nearest ones are 0.09999999403953552 and 0.10000000149011612
  fp16lab: error: policy: --set finite_guard=maybe: 'maybe' is not a number: a digit is missing
  fp16lab: error: policy: --set power_of_two=up: known are any, warn, round_down
  $ refused policy --policy mindspore --set backoff_factor=0.5 --trace F
  fp16lab: error: policy: --set backoff_factor=0.5: policy mindspore has no parameter 'backoff_factor': known are initial_scale, growth_factor, growth_interval, overflow_limit, min_scale, finite_guard, max_scale, power_of_two
  $ refused policy --policy keras2 --set initial_scale=0.5 --trace F
  fp16lab: error: policy: scaler.initial_scale = 0.5: must be from scaler.min_scale = 1 to scaler.max_scale = inf
  $ refused policy --policy lost-mass --trace F
  fp16lab: error: policy: policy lost-mass decides by the gradients' magnitudes: give --amax LIST instead of --trace
  $ for amax in 1,-2 1,two; do refused policy --policy torch --amax $amax; done
  fp16lab: error: policy: --amax: number 2: '-2': expected a magnitude, 0 or more
  fp16lab: error: policy: --amax: number 2: 'two' is not a number: a digit is missing
  $ for more in --json O; do refused policy --policy torch --trace F $more; done
  fp16lab: error: policy: --json requires --list; a trace is printed as CSV
  fp16lab: error: policy: unexpected argument 'O'
  $ refused policy --list --trace F
  fp16lab: error: policy: --list takes no --trace, --amax or --set
  $ refused policy --list --policy megatorn
  fp16lab: error: policy: scaler.policy = "megatorn": known are none, fixed, torch, *; did you mean 'megatron'? (glob)
  $ refused policy --policy torch --tracer F
  fp16lab: error: policy: unknown option '--tracer'; did you mean '--trace'?
