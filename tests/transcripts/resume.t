`fp16lab train --resume` goes on with the bits of a run that was not interrupted, on another number of
threads, and refuses what would change them.

  $ . "$TESTDIR/setup.sh"
  $ small_config
  $ sets() { for set; do printf ' --set %s' "$set"; done; }

Runs here have Adam, dynamic scaling that overflows at first and grows later, three micro-batches a step,
evaluations and three checkpoints on the way, until they are interrupted.

  $ begin() { out=$1; shift; fp16lab train -c small.toml -o $out --threads 1 --quiet $(sets \
  > train.accumulate=3 optimizer.name=adam \
  > optimizer.lr=0.001 scaler.policy=dynamic scaler.initial_scale=2^24 scaler.growth_interval=7 \
  > scaler.growth_factor=16 \
  > checkpoint.every=2 train.evaluate_every=5 observe.histograms_every=3 "$@") > summary; }
  $ resume() { out=$1; shift; fp16lab train --resume -o $out --threads 2 --quiet "$@" > summary; }
  $ refuse() { out=$1; shift; refused train --resume -o $out --quiet "$@" |
  > sed 's/its [0-9]* steps/its N steps/; s/made [0-9][0-9]*/made N/'; }
  $ process_of() { sed -n 's/.*"process": *\([0-9]*\).*/\1/p' $1/claim.json; }
  $ steps_reach() { until [ -e $2/steps.csv ] && [ $(wc -l < $2/steps.csv) -gt $1 ]; do kill -0 $! || break
  > sleep 0.01; done; }
  $ interrupted() { begin "$@" train.steps=100000 2> told & steps_reach 16 $1
  > kill -TERM $(process_of $1); wait; step=$(column step $1/steps.csv | tail -1); }
  $ same_states() { column state_hash $1/steps.csv > a; column state_hash $2/steps.csv | cmp - a; }
  $ steps_of() { cut -d , -f 1-9,11 $1/steps.csv; }
  $ same() { steps_of $1 > a; steps_of $2 | cmp - a
  > for file in evaluations.csv histograms.jsonl overflows.jsonl config.toml; do cmp $1/$file $2/$file; done
  > ls $1/checkpoints > a; ls $2/checkpoints | cmp - a; last=$(tail -1 a)
  > cmp $1/checkpoints/$last $2/checkpoints/$last; }

  $ interrupted run; ls run/checkpoints | tail -1 | grep -c $step
  > grep -o '"state": "[a-z]*"\|interrupted with state saved\|[^;]* continues' run/manifest.json
  1
  "state": "stopped"
  interrupted with state saved
   fp16lab train --resume -o run continues
  $ begin whole train.steps=$((step + 9))
  > fp16lab train --resume -o run --threads 2 --set train.steps=$((step + 9)) 2>&1 > summary |
  > grep -c "resuming after step $step"
  1
  $ same whole run; grep -o '"state":"[a-z]*"' summary
  "state":"finished"
  $ of_json '[r["step"] == '$step' for r in x["resumptions"]]' \
  > 'x["config"] == open("run/config.toml").read()' < run/manifest.json
  [true]
  true

Nothing is left to do, and it says so again and again. A finished run can be made longer.

  $ cp run/manifest.json before; fp16lab train --resume -o run 2>&1 > summary |
  > grep -o 'this run has finished'; cmp before run/manifest.json
  this run has finished
  $ grep -c $(column state_hash whole/steps.csv | tail -1) summary
  1
  $ begin longer train.steps=11; begin whole2 train.steps=23; resume longer --set train.steps=23
  $ same_states whole2 longer; cmp whole2/evaluations.csv longer/evaluations.csv

Checkpoints are kept as asked.

  $ begin two train.steps=9 checkpoint.keep=2; ls two/checkpoints | xargs
  > begin all train.steps=5 checkpoint.keep=0; ls all/checkpoints | xargs
  step-000008.safetensors step-000009.safetensors
  step-000002.safetensors step-000004.safetensors step-000005.safetensors
  $ begin none train.steps=5 checkpoint.every=0; ls none/checkpoints
  ls: cannot access 'none/checkpoints': No such file or directory
  [2]

Settings that cannot change bits may change; those that would are refused by name, and nothing is touched.

  $ interrupted free; resume free $(sets train.steps=$((step + 5)) checkpoint.every=0 \
  > observe.histograms_every=0 train.evaluate_every=0 report.margin.loss=3 report.margin.accuracy=2)
  $ begin whole3 train.steps=$((step + 5)); same_states whole3 free; grep -A 2 margin free/config.toml
  [report.margin]
  loss = 3.0
  accuracy = 2.0
  $ interrupted bits; cat bits/manifest.json bits/steps.csv bits/config.toml > before
  $ for set in train.batch_size=10 train.accumulate=2 train.clip_norm=1 train.clip_value=1 train.seed=9 \
  > train.perturb_ulps=1 optimizer.lr=0.002 \
  > optimizer.name=sgd amp.level=O0 scaler.policy=fixed scaler.growth_interval=8 \
  > model.layer.mlp1.widths=[8,10] data.batches=9 \
  > backend.tensor_core=volta 'schedule.name=step schedule.step_interval=5'; do refuse bits $(sets $set); done
  fp16lab: error: --resume: train.batch_size = 10, but the run in bits has 20, and its steps so far would have had other bits; begin another run in another folder
  fp16lab: error: --resume: train.accumulate = 2, but the run in bits has 3, and its steps so far would have had other bits; begin another run in another folder
  fp16lab: error: --resume: train.clip_norm = 1.0, but the run in bits has 0.0, and its steps so far would have had other bits; begin another run in another folder
  fp16lab: error: --resume: train.clip_value = 1.0, but the run in bits has 0.0, and its steps so far would have had other bits; begin another run in another folder
  fp16lab: error: --resume: train.seed = 9, but the run in bits has 1, and its steps so far would have had other bits; begin another run in another folder
  fp16lab: error: --resume: train.perturb_ulps = 1, but the run in bits has 0, and its steps so far would have had other bits; begin another run in another folder
  fp16lab: error: --resume: optimizer.lr = 0.002, but the run in bits has 0.001, and its steps so far would have had other bits; begin another run in another folder
  fp16lab: error: --resume: optimizer.name = "sgd", but the run in bits has "adam", and its steps so far would have had other bits; begin another run in another folder
  fp16lab: error: --resume: amp.level = "O0", but the run in bits has "O1", and its steps so far would have had other bits; begin another run in another folder
  fp16lab: error: --resume: scaler.policy = "fixed", but the run in bits has "dynamic", and its steps so far would have had other bits; begin another run in another folder
  fp16lab: error: --resume: scaler.growth_interval = 8, but the run in bits has 7, and its steps so far would have had other bits; begin another run in another folder
  fp16lab: error: --resume: model.layer.mlp1.widths = [8, 10], but the run in bits has [16, 10], and its steps so far would have had other bits; begin another run in another folder
  fp16lab: error: --resume: data.batches = 9, but the run in bits has 10, and its steps so far would have had other bits; begin another run in another folder
  fp16lab: error: --resume: backend.tensor_core = "volta", but the run in bits has "auto", and its steps so far would have had other bits; begin another run in another folder
  fp16lab: error: --resume: schedule.name = "step", but the run in bits has "constant", and its steps so far would have had other bits; begin another run in another folder
  $ refuse bits --seed 9; refuse bits --set train.steps=1
  > cat bits/manifest.json bits/steps.csv bits/config.toml | cmp - before
  fp16lab: error: --resume: train.seed = 9, but the run in bits has 1, and its steps so far would have had other bits; begin another run in another folder
  fp16lab: error: --resume: the run has made N steps already, more than the 1 that its configuration now asks for
  $ begin cosine train.steps=6 schedule.name=cosine; refuse cosine --set train.steps=8
  fp16lab: error: --resume: train.steps = 8, but the run in cosine has 6, and its cosine schedule ends with the run; begin another run in another folder
  $ begin fixed train.steps=6 schedule.name=cosine schedule.total_steps=20; resume fixed --set train.steps=8

A run that was killed before its first checkpoint begins again; a twin is continued from its checkpoint, not
perturbed again.

  $ begin bare checkpoint.every=0 train.steps=1000000 2> told & steps_reach 4 bare
  > kill -KILL $(process_of bare); wait; ls bare/checkpoints
  ls: cannot access 'bare/checkpoints': No such file or directory
  [2]
  $ fp16lab train --resume -o bare --set train.steps=12 2>&1 > summary |
  > grep -o 'no checkpoint yet, from the beginning'
  no checkpoint yet, from the beginning
  $ begin bare2 checkpoint.every=0 train.steps=12; steps_of bare > a; steps_of bare2 | cmp - a
  $ interrupted twin train.perturb_ulps=1; refuse twin --set train.perturb_ulps=2 | cut -d , -f 1
  > resume twin --set train.steps=$((step + 5))
  fp16lab: error: --resume: train.perturb_ulps = 2
  $ begin twin2 train.perturb_ulps=1 train.steps=$((step + 5)); same twin2 twin

Version 1 of the state_hash had powers of beta1 and beta2 for sgd too, which reads neither: such a run goes on
with the second, and is compared as what it is.

  $ cp -r "$TESTDIR/../golden/run_folders/state_hash_1" old; chmod -R u+w old; cp old/steps.csv before
  $ fp16lab train -c old/config.toml -o fresh --quiet --set train.steps=4 > summary
  > fp16lab train --resume -o old --quiet --set train.steps=4 > summary
  $ column state_hash old/steps.csv > a; column state_hash before > b; head -2 a | cmp - b
  $ column state_hash fresh/steps.csv | paste a - | awk '{ print $1 == $2 }' | xargs
  > column loss fresh/steps.csv > a; column loss old/steps.csv | cmp - a
  0 0 1 1
  $ grep -o '"\(state_hash_version\|first_state_hash_until\)": 2' old/manifest.json
  > fp16lab compare old fresh | grep -o 'The state_hash of.*other\|The runs differ'
  "state_hash_version": 2
  "first_state_hash_until": 2
  The state_hash of 2 steps is of version 1 in one run and 2 in the other
  $ fp16lab report old fresh -o page --mix-builds 2> /dev/null | grep -c 'tiny on uniform ('
  0
  [1]

Damage is one line, and a way out; a refused resumption changes nothing. A damaged checkpoint:

  $ interrupted damaged checkpoint.keep=0; cat damaged/manifest.json damaged/steps.csv > before
  > file=damaged/checkpoints/$(ls damaged/checkpoints | tail -1); cp $file good
  $ line() { failed train --resume -o damaged --quiet |
  > sed 's/step-[0-9]*/step-N/g; s/[0-9]\{3,\} \|[0-9]\{3,\};/N /g; s/[0-9a-f]\{16\}/N/g'; }
  $ : > $file; line; head -c 3000 good > $file; line; cp good $file
  > printf X | dd of=$file bs=1 seek=$(($(wc -c < good) - 100)) conv=notrunc 2> /dev/null; line
  fp16lab: error: damaged/checkpoints/step-N.safetensors: 0 bytes, expected the 8-byte length of a safetensors header (delete this file to continue from step-N.safetensors)
  fp16lab: error: damaged/checkpoints/step-N.safetensors: byte 0: a header of N bytes in a file of N  the file is cut off or of another format (delete this file to continue from step-N.safetensors)
  fp16lab: error: damaged/checkpoints/step-N.safetensors: tensor 'step.learning_rate' is damaged: its data have the digest N, expected N (delete this file to continue from step-N.safetensors)
  $ printf '\002\0\0\0\0\0\0\0{}' > $file; line; cat damaged/manifest.json damaged/steps.csv | cmp - before
  fp16lab: error: damaged/checkpoints/step-N.safetensors: a safetensors file, but no checkpoint: its metadata have no format, expected format = 'fp16lab-checkpoint' (delete this file to continue from step-N.safetensors)
  $ rm $file; step=$(ls damaged/checkpoints | tail -1 | grep -o '[1-9][0-9]*')
  > resume damaged --set train.steps=$((step + 6)); begin whole5 train.steps=$((step + 6)) checkpoint.keep=0
  $ steps_of damaged > a; steps_of whole5 | cmp - a

Damage to what was written before it: a continued run would hide the hole for good. What came after it may be
lost: the run repeats it.

  $ interrupted lines observe.explain_overflow=true; cp lines/manifest.json before
  $ line() { failed train --resume -o lines --quiet |
  > sed 's/fp16lab: //; s/:1: /:one: /; s/:2: /:two: /; s/[0-9a-f]\{16\}/N/g; s/[0-9][0-9]*/N/g'
  > cp good lines/$1; }
  $ for file in steps.csv histograms.jsonl overflows.jsonl culprits.jsonl evaluations.csv
  > do cp lines/$file good; head -n -1 good > lines/$file
  > line $file; head -c -5 good > lines/$file; line $file; case $file in *csv) first=2;; *) first=1;; esac
  > sed ${first}d good > lines/$file; line $file; sed "${first}s/...\(.\)$/\1/" good > lines/$file
  > line $file; rm lines/$file; line $file; done
  error: --resume: lines/steps.csv ends at step N, before its checkpoint of step N (restore them from a copy, or start again with --force)
  error: --resume: lines/steps.csv ends at step N, before its checkpoint of step N (restore them from a copy, or start again with --force)
  error: --resume: lines/steps.csv:two: step N follows step N (restore them from a copy, or start again with --force)
  error: --resume: lines/steps.csv:two: expected N columns, got N (restore them from a copy, or start again with --force)
  error: --resume: cannot read lines/steps.csv: No such file or directory (restore them from a copy, or start again with --force)
  error: --resume: lines/histograms.jsonl:N: N rows up to step N end here, but N had been written before the checkpoint (restore them from a copy, or start again with --force)
  error: --resume: lines/histograms.jsonl:N: N rows up to step N end here, but N had been written before the checkpoint (restore them from a copy, or start again with --force)
  error: --resume: lines/histograms.jsonl:N: N rows up to step N end here, but N had been written before the checkpoint (restore them from a copy, or start again with --force)
  error: --resume: lines/histograms.jsonl:one: not valid JSON at byte N (restore them from a copy, or start again with --force)
  error: --resume: cannot read lines/histograms.jsonl: No such file or directory (restore them from a copy, or start again with --force)
  error: --resume: lines/overflows.jsonl:N: N rows up to step N end here, but N had been written before the checkpoint (restore them from a copy, or start again with --force)
  error: --resume: lines/overflows.jsonl:N: N rows up to step N end here, but N had been written before the checkpoint (restore them from a copy, or start again with --force)
  error: --resume: lines/overflows.jsonl:N: N rows up to step N end here, but N had been written before the checkpoint (restore them from a copy, or start again with --force)
  error: --resume: lines/overflows.jsonl:one: not valid JSON at byte N (restore them from a copy, or start again with --force)
  error: --resume: cannot read lines/overflows.jsonl: No such file or directory (restore them from a copy, or start again with --force)
  error: --resume: lines/culprits.jsonl:N: N rows up to step N end here, but N had been written before the checkpoint (restore them from a copy, or start again with --force)
  error: --resume: lines/culprits.jsonl:N: N rows up to step N end here, but N had been written before the checkpoint (restore them from a copy, or start again with --force)
  error: --resume: lines/culprits.jsonl:N: N rows up to step N end here, but N had been written before the checkpoint (restore them from a copy, or start again with --force)
  error: --resume: lines/culprits.jsonl:one: not valid JSON at byte N (restore them from a copy, or start again with --force)
  error: --resume: cannot read lines/culprits.jsonl: No such file or directory (restore them from a copy, or start again with --force)
  error: --resume: lines/evaluations.csv:N: N rows up to step N end here, but N had been written before the checkpoint (restore them from a copy, or start again with --force)
  error: --resume: lines/evaluations.csv:N: N rows up to step N end here, but N had been written before the checkpoint (restore them from a copy, or start again with --force)
  error: --resume: lines/evaluations.csv:N: N rows up to step N end here, but N had been written before the checkpoint (restore them from a copy, or start again with --force)
  error: --resume: lines/evaluations.csv: the rows up to step N are not those that had been written before the checkpoint (their SHA-N is another one) (restore them from a copy, or start again with --force)
  error: --resume: cannot read lines/evaluations.csv: No such file or directory (restore them from a copy, or start again with --force)
  $ cp lines/steps.csv good; sed -i \
  > '$s/\(.*\)0,\([^,]*,[^,]*\)$/\11,\2/; t; $s/\(.*\).,\([^,]*,[^,]*\)$/\10,\2/' lines/steps.csv
  > line steps.csv
  error: --resume: lines/steps.csv:N: step N has the state_hash N, but its checkpoint has N (restore them from a copy, or start again with --force)
  $ cp lines/histograms.jsonl good; sed -i '$s/"counts":\[/&7,/' lines/histograms.jsonl
  > line histograms.jsonl | cut -d ' ' -f 1-3; cmp before lines/manifest.json
  error: --resume: lines/histograms.jsonl:N:
  $ for file in histograms.jsonl overflows.jsonl; do printf '{"step":%s' $((step + 1)) >> lines/$file; done
  $ resume lines --set train.steps=$((step + 4))
  > begin whole6 train.steps=$((step + 4)) observe.explain_overflow=true; same whole6 lines
  > cmp lines/culprits.jsonl whole6/culprits.jsonl
  $ cp lines/histograms.jsonl good; head -c 4000 good > lines/histograms.jsonl; line histograms.jsonl
  error: lines: this run has finished, but its records are damaged: histograms.jsonl has N rows, but the run wrote N; restore them from a copy, or start again with --force
  $ interrupted late train.evaluate_every=0; cp -r late late2; rm late/evaluations.csv
  > : > late2/evaluations.csv
  $ begin whole7 train.evaluate_every=0 train.steps=$((step + 4)); for run in late late2
  > do resume $run --set train.steps=$((step + 4)); same whole7 $run; done

What cannot be resumed says what can. With a configuration it begins, so that one command line serves for the
first start and all others.

  $ refuse nothing; ls -d nothing; refuse nothing --force; for again in 1 2
  > do small first --resume --set train.steps=4; done; wc -l < first/steps.csv
  fp16lab: error: --resume: nothing holds no run; begin one with --config
  ls: cannot access 'nothing': No such file or directory
  fp16lab: error: --resume continues a run and --force replaces it: expected one of them
  fp16lab: first: this run has finished after 4 steps; nothing is left to do
  5
  $ begin none2 train.steps=4 checkpoint.every=0; refuse none2 --set train.steps=5; interrupted stopped
  > refused train -c small.toml -o stopped --quiet | sed 's/step [0-9]*/step N/'
  fp16lab: error: --resume: none2 holds a finished run without a checkpoint, which cannot be made longer (checkpoint.every was 0)
  fp16lab: error: --out: stopped holds an unfinished run with a checkpoint of step N; continue it with --resume, or replace it with --force
  $ begin lost train.skip_limit=2 scaler.initial_scale=2^100 2> told; resume lost 2> told
  [4]

A run whose last loss is not finite may be made longer too.

  $ lost='optimizer.name=sgd optimizer.lr=1e30 scaler.initial_scale=1'
  $ begin cut $lost train.steps=6 2> told; resume cut 2> told; wc -l < cut/steps.csv
  > resume cut --set train.steps=8 2> told
  7
  [4]
  $ begin whole8 $lost train.steps=8 2> told; same_states whole8 cut

What a killed writer left is cleaned up, and older checkpoints go though none is written any more; what is the
user's stays.

  $ interrupted left; touch left/manifest.json.tmp-1 left/config.toml.tmp-22 \
  > left/checkpoints/step-000004.safetensors.tmp-333 left/mine.tmp-1
  $ resume left --set train.steps=$((step + 1)); find left | grep tmp; mkdir early
  > touch early/manifest.json.tmp-1; begin early train.steps=1
  left/mine.tmp-1
  $ begin kept train.steps=9 checkpoint.keep=2; begin kept0 train.steps=9 checkpoint.keep=0
  > cp kept0/checkpoints/step-000006.safetensors kept/checkpoints
  $ sed -i 's/"finished"/"running"/' kept/manifest.json; failed train --resume -o kept --quiet
  fp16lab: error: --resume: kept/manifest.json is not what the run wrote (it has another SHA-256); restore it from a copy, or start again with --force
  $ $python -c 'import json
  > m = json.load(open("kept/manifest.json")); del m["sha256"], m["rows"]["sha256"]
  > json.dump(m, open("kept/manifest.json", "w"), indent=2)'
  $ resume kept; ls kept/checkpoints | xargs
  step-000008.safetensors step-000009.safetensors

Dumps fit the steps, and change no bit.

  $ interrupted dumps; for options in "--dump-initial i" "--dump-gradients $step g"
  > do refuse dumps $options | sed "s/step $step.*/step N/"; done
  fp16lab: error: --dump-initial: this run continues after step N
  fp16lab: error: --dump-gradients: dump_gradients: step N
  $ small dumped --dump-initial i --dump-gradients 2 g --set train.steps=3; ls i g
  > small undumped --set train.steps=3; same_states dumped undumped
  g
  i
