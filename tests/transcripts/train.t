`fp16lab train` writes a run folder. The same configuration makes the same bits, whoever watches.

  $ . "$TESTDIR/setup.sh"
  $ small_config
  $ same() { for name in $1; do column $name $2/steps.csv > a; column $name $3/steps.csv | cmp - a; done; }
  $ sets() { for set; do printf ' --set %s' "$set"; done; }

The summary is data on stdout, messages go to stderr. Steps 1, 20 and 40 have histograms, and something
is learnt. Weights, gradients and momentum of a 64-16-10 network in FP32 are 14,520 bytes; a hundred times as
much is not taken.

  $ fp16lab train -c small.toml -o run --seed 3 > summary 2> told; grep -v steps/s told
  data: normal, drawn from seed 3: 10 batches of 20 examples an epoch, 64 inputs, 10 classes
  precision: O1 of torch with f16
  note: there is no loss scale (scaler.policy = none); training of this kind mostly uses one: scaler.policy=torch
  fp16lab: run: Nothing to fix: every loss and every gradient that was counted is finite, no step was skipped, and every tensor fits.
  fp16lab: run: Next: fp16lab report run (figures and a page)
  $ of_json '[x["state"], x["steps"], 14520 < x["peak_tensor_bytes"] < 1452000]' < summary
  ["finished", 40, true]
  $ of_json 'x["state"], x["config"] == open("run/config.toml").read()' < run/manifest.json
  ["finished", true]
  $ column step run/steps.csv | tail -1; column step run/evaluations.csv
  > grep -o '^{"step":[0-9]*' run/histograms.jsonl | sort | uniq -c
  40
  40
        6 {"step":1
        6 {"step":20
        6 {"step":40
  $ column loss run/steps.csv | sed -n '1p; $p'
  > grep -c "$(column state_hash run/steps.csv | tail -1)" summary
  2.3126447200775146
  1.8029372692108154
  1

The resolved configuration makes the same run again; `--quiet` says nothing. So does any number of threads, at
O0, at O1 and of 16-bit weights; another seed does not, and the state moves at every step.

  $ fp16lab train -c run/config.toml -o again --quiet > summary; cmp run/config.toml again/config.toml
  > same state_hash run again
  $ for level in 'amp.level=O0' 'amp.level=O1' 'amp.dialect=paddle --set amp.level=O2' \
  > 'amp.dialect=paddle --set amp.level=O2 --set amp.master_weights=false'; do
  > for threads in 1 2; do small threads$threads --threads $threads --force --set $level --set \
  > scaler.policy=dynamic; done
  > same state_hash threads1 threads2; small other --force --seed 2 --set $level --set scaler.policy=dynamic
  > for run in threads1 other; do column state_hash $run/steps.csv | head -40; done | sort -u | wc -l; done
  80
  80
  80
  80

Watching changes no bit.

  $ small watched --set observe.histograms_every=1; small blind --set observe.histograms_every=0
  > same state_hash watched blind
  $ wc -c < blind/histograms.jsonl
  0

A twin, whose weights begin an ulp apart, parts from its run in the first step, and is a run like any other.

  $ small plain --set amp.level=O0; small twin --set amp.level=O0 --set train.perturb_ulps=1
  $ small twin2 --threads 2 --set amp.level=O0 --set train.perturb_ulps=1; same state_hash twin twin2
  $ column state_hash plain/steps.csv > a
  > column state_hash twin/steps.csv | paste a - | awk '$1 == $2' | wc -l
  0
  $ paste plain/steps.csv twin/steps.csv | awk -F , 'NR == 2 { d = ($2 - $12) / $2; print (d * d < 1e-10) }'
  1
  $ grep perturb plain/config.toml twin/config.toml
  plain/config.toml:perturb_ulps = 0
  twin/config.toml:perturb_ulps = 1
  $ fp16lab train -c twin/config.toml -o again --quiet --force > summary; same state_hash twin again

A finished run is not overwritten, not even with `--force` if the new one cannot begin.

  $ cp run/manifest.json before; refused train -c small.toml -o run --quiet
  fp16lab: error: --out: run holds a finished run; choose another folder, or replace it with --force
  $ failed train -c small.toml -o run --force --quiet --set data.name=cifar10 --set data.path=/nonexistent
  fp16lab: error: cifar10: data_batch_1.bin is not in /nonexistent (chosen by data.path); point data.path or $FP16LAB_DATA at a folder with the six files of the binary version
  $ cmp before run/manifest.json; small run --force --set train.steps=5; wc -l < run/steps.csv
  6

Divergence is exit code 4, of a loss that is no number and of steps that are not taken; the message says which
trouble it is. A scale that is on its way is no failure.

  $ ends() { name=$1; shift; fp16lab train -c small.toml -o $name $(sets "$@") > summary 2> told
  > echo "exit code $?"
  > grep -o '"state":"[a-z]*"\|"diagnosis":"[a-z_]*"' summary | xargs
  > grep -v 'Next:' told | sed -n 's/^fp16lab: [^:]*: //p' | head -1; }
  $ ends lost optimizer.lr=1e30 amp.level=O0 train.steps=200
  exit code 4
  state:diverged diagnosis:learning_rate_too_high
  The loss is Inf or NaN in 50 of 51 steps, since step 2. It diverged at step 51: the loss was not finite in 50 steps in a row. bad learning rate: the greatest weight grew from 2^-2 to 2^97 while every number was finite, so the updates are too large, and no format or scale is to blame: this is FP32. Lower optimizer.lr (it is 1e+30).
  $ column step lost/steps.csv | tail -1
  51
  $ ends high scaler.policy=torch scaler.initial_scale=2^36 train.skip_limit=3
  exit code 4
  state:diverged diagnosis:scale_began_too_high
  No step was taken: skipped 3 of 3 steps, at scales from 2^36 to 2^34. The gradient of fc2.bias was Inf or NaN in 3 steps; of 4 parameters with such gradients it is the nearest to the loss. It diverged at step 3: 3 skipped steps in a row (train.skip_limit). bad scale: no step was taken yet: S began at 2^36 and has come down to 2^34, which is still too much. To go on, begin lower (scaler.initial_scale) or allow more skips (train.skip_limit).
  $ ends stuck scaler.policy=fixed scaler.initial_scale=2^36 train.skip_limit=3
  exit code 4
  state:diverged diagnosis:scale_stuck
  No step was taken: skipped 3 of 3 steps, at a scale of 2^36 throughout. The gradient of fc2.bias was Inf or NaN in 3 steps; of 4 parameters with such gradients it is the nearest to the loss. It diverged at step 3: 3 skipped steps in a row (train.skip_limit). bad scale: S stayed at 2^36 through all 3 overflows, so each step overflows as the one before. To go on, lower scaler.initial_scale or take a policy that answers to every overflow (scaler.policy = "torch" or "lost-mass").
  $ ends beyond scaler.policy=torch scaler.initial_scale=2^90 train.skip_limit=3
  exit code 4
  state:diverged diagnosis:scale_beyond_use
  No step was taken: skipped 3 of 3 steps, at scales from 2^90 to 2^88. The gradient of fc2.bias was Inf or NaN in 3 steps; of 4 parameters with such gradients it is the nearest to the loss. It diverged at step 3: 3 skipped steps in a row (train.skip_limit). bad scale: S began at 2^90 and has come down to 2^88, where ordinary gradients overflow. Set scaler.max_scale (2^24 is ample for most networks).
  $ ends rate optimizer.lr=1e30 scaler.policy=torch train.skip_limit=5
  exit code 4
  state:diverged diagnosis:learning_rate_too_high
  The loss is Inf or NaN in 5 of 6 steps, since step 2. It diverged at step 6: 5 skipped steps in a row (train.skip_limit). bad learning rate: the greatest weight grew from 2^-2 to 2^97 while every number was finite, so the updates are too large, as they would be in FP32. Lower optimizer.lr (it is 1e+30).
  $ ends policy scaler.policy=fairseq scaler.initial_scale=2^36 scaler.min_loss_scale=2^34
  exit code 4
  state:diverged diagnosis:scale_began_too_high
  No step was taken: skipped 2 of 2 steps, at scales from 2^36 to 2^35. The gradient of fc2.bias was Inf or NaN in 2 steps; of 4 parameters with such gradients it is the nearest to the loss. It diverged at step 2: policy "fairseq" ends the run: the scale would fall to scaler.min_loss_scale = 17179869184.000000 or below. bad scale: no step was taken yet: S began at 2^36 and has come down to 2^35, which is still too much. To go on, begin lower (scaler.initial_scale).
  $ ends none scaler.policy=fixed scaler.initial_scale=2^36 train.steps=5
  exit code 4
  state:diverged diagnosis:scale_stuck
  No step was taken: skipped 5 of 5 steps, at a scale of 2^36 throughout. The gradient of fc2.bias was Inf or NaN in 5 steps; of 4 parameters with such gradients it is the nearest to the loss. The scale cannot fall any further. Bad scale: S stayed at 2^36 through all 5 overflows, so each step overflows as the one before. To go on, lower scaler.initial_scale or take a policy that answers to every overflow (scaler.policy = "torch" or "lost-mass").
  $ ends floor scaler.policy=torch scaler.initial_scale=2^36 scaler.min_scale=2^36 train.steps=5
  exit code 4
  state:diverged diagnosis:scale_stuck
  No step was taken: skipped 5 of 5 steps, at a scale of 2^36 throughout. The gradient of fc2.bias was Inf or NaN in 5 steps; of 4 parameters with such gradients it is the nearest to the loss. The scale cannot fall any further. Bad scale: S stayed at 2^36 through all 5 overflows, so each step overflows as the one before. To go on, lower scaler.min_scale (it is 2^36).
  $ ends falling scaler.policy=torch scaler.initial_scale=2^60 train.steps=5
  exit code 0
  state:finished
  No step was taken: skipped 5 of 5 steps, still searching: 2^60 to 2^56 in 5 steps. Train for more steps, so that it finds its scale, or set a lower scaler.initial_scale to start nearer to it. The gradient of fc2.bias was Inf or NaN in 5 steps; of 4 parameters with such gradients it is the nearest to the loss.
  $ grep -o 'Next:.*' told
  Next: fp16lab train -c small.toml --set scaler.policy=torch --set 'scaler.initial_scale=2^60' --set train.steps=5 --explain-overflow -o falling-explained (names the first operation that gave an Inf or NaN, and the scale at which none does)
  $ ends well scaler.policy=fixed scaler.initial_scale=2^10 train.steps=5
  exit code 0
  state:finished
  Nothing to fix: every loss and every gradient that was counted is finite, no step was skipped, and every tensor fits.

Ctrl-C ends a run after its step, with exit code 130 and a folder that is whole. A run that is killed leaves
what there is, does not pass for finished, and its folder may be used again; two processes cannot write one
run.

  $ start() { env --default-signal=INT fp16lab train -c small.toml -o $1 --threads 1 --set \
  > train.steps=1000000 > summary 2> told & pid=$!
  > until [ -e $1/steps.csv ] && [ $(wc -l < $1/steps.csv) -ge 5 ]; do kill -0 $pid || break; sleep 0.02
  > done; }
  $ for signal in INT TERM; do start $signal; kill -$signal $pid; wait $pid; echo "exit code $?"
  > grep -o '"state":"[a-z]*"' summary; grep -o '"state": "[a-z]*"' $signal/manifest.json
  > tail -c 1 $signal/steps.csv | od -An -c; done
  exit code 130
  "state":"stopped"
  "state": "stopped"
    \n
  exit code 130
  "state":"stopped"
  "state": "stopped"
    \n
  $ start killed; refused train -c small.toml -o killed --force --quiet | sed 's/([^)]*)/(...)/'
  > kill -KILL $pid
  fp16lab: error: --out: killed: another process is writing this run (...)
  $ wait $pid 2> /dev/null
  [137]
  $ grep -o '"state": "[a-z]*"' killed/manifest.json; fp16lab hist killed > /dev/null 2>&1; small killed
  > column step killed/steps.csv | tail -1
  "state": "running"
  40

A policy that looks at gradients moves its scale without an overflow, whether the folder has histograms or
not.

  $ small mass --set scaler.policy=lost-mass --set scaler.initial_scale=2^-14
  > column loss_scale mass/steps.csv | sed -n '1p; $p'; wc -l < mass/overflows.jsonl
  6.103515625e-05
  65536
  0
  $ small mass0 --set scaler.policy=lost-mass --set scaler.initial_scale=2^-14 --set \
  > observe.histograms_every=0; same state_hash mass mass0

A rescued run skips nothing: what steps.csv shows is the scale of the last backward pass of a step. It is
resumed with the same files.

  $ high='--set scaler.policy=torch --set scaler.initial_scale=2^30 --set scaler.growth_interval=4'
  $ small skips $high; small rescues $high --set scaler.rescue=20
  $ for run in skips rescues; do column skipped $run/steps.csv | sort | uniq -c | xargs
  > column found_inf $run/steps.csv | sort -u | xargs; done
  23 0 17 1
  0 1
  40 0
  0
  $ head -1 rescues/overflows.jsonl; grep -c rescue skips/overflows.jsonl
  {"step":1,"kind":"gradient","loss_scale":1073741824.0,"optimizers":[],"parameters":["fc1.weight","fc1.bias","fc2.weight","fc2.bias"],"rescue":{"attempts":12,"loss_scale":262144.0,"rescued":true}}
  0
  [1]
  $ grep -o '"rescued":true' rescues/overflows.jsonl | wc -l; wc -l < rescues/overflows.jsonl
  10
  10
  $ sed 's/.*"loss_scale":\([0-9]*\).0.*/\1/' rescues/overflows.jsonl > last
  $ grep -o '"step":[0-9]*' rescues/overflows.jsonl | cut -d : -f 2 | while read step
  > do column loss_scale rescues/steps.csv | sed -n ${step}p; done | cmp - last
  $ high="$(sets scaler.policy=lost-mass scaler.initial_scale=2^36 scaler.rescue=1 checkpoint.every=2)"
  $ small whole $high --set train.steps=14; small split $high --set train.steps=6
  > wc -l < whole/overflows.jsonl
  1
  $ fp16lab train --resume -o split --quiet --set train.steps=14 > /dev/null
  $ same 'state_hash loss_scale' whole split; cmp whole/overflows.jsonl split/overflows.jsonl

It says that there is no loss scale where FP16 mostly has one, and warns once of unscaling that rounds.

  $ for sets in 'amp.level=O1 scaler.policy=auto' 'amp.level=O1 scaler.policy=torch' \
  > 'amp.level=O0 scaler.policy=auto'
  > do fp16lab train -c small.toml -o note --force $(sets $sets train.steps=1) 2>&1 | grep -c 'no loss scale'
  > done
  1
  0
  0
  [1]
  $ rounds="$(sets scaler.policy=torch scaler.backoff_factor=0.8 scaler.growth_interval=1 train.steps=2)"
  $ fp16lab train -c small.toml -o note --force $rounds 2>&1 | grep -o 'warning.*two'
  warning: scaler.backoff_factor = 0.8 is not a power of two: multiplying by S and by 1/S then rounds every gradient twice; scaler.power_of_two = "round_down" keeps the rule and uses the power of two
  $ for more in --quiet --set=scaler.power_of_two=any --set=scaler.power_of_two=round_down
  > do fp16lab train -c small.toml -o note --force $rounds $more 2>&1 | grep warning; done
  [1]

What cannot be had is refused.

  $ for sets in scaler.rescue=1 scaler.rescue=-1 \
  > 'scaler.policy=lost-mass train.graph=true backend.device=cuda' \
  > 'scaler.policy=torch scaler.rescue=2 train.graph=true backend.device=cuda'
  > do refused train -c small.toml -o new $(sets $sets); done
  fp16lab: error: small.toml with --set: scaler.rescue = 1 with scaler.policy = "none": its scale never decreases, so there is nothing to try; expected a dynamic policy, or 0
  fp16lab: error: --set: scaler.rescue = -1: expected an integer, from 0 to 1000
  fp16lab: error: small.toml with --set: train.graph = true with scaler.policy = "lost-mass": it decides by the counts of every step, which the host sums, and a recorded step cannot wait for them; expected train.graph = false, or a policy that decides by overflows alone, such as torch
  fp16lab: error: small.toml with --set: train.graph = true with scaler.rescue = 2: whether a backward pass is done again is decided in the middle of a step, which a recorded one cannot wait for; one of the two must be off
  $ small run8 --set scaler.policy=fixed --set scaler.initial_scale=8
  $ fp16lab hist run8 | head -1 | cut -c 1-9; refused hist run8 --step 7; refused hist run8 --scale big
  run8: step 40, recorded at loss scale 2^3, shown in FP16 at 2^3
  note: the recorded run rounds: what earlier casts of its backward passes made zero stays zero at every other scale, so the scale that fits may be larger than these gradients show
  Nothing t
  fp16lab: error: --step 7: run8 has histograms of the steps 1, 20, 40
  fp16lab: error: --scale: 'big' is not a number: a digit is missing
