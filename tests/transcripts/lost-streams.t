What ends a run and what does not: a log that is gone, descriptors that were never there, signals, limits.

  $ . "$TESTDIR/setup.sh"
  $ small_config
  $ train() { fp16lab train -c small.toml --threads 1 -o "$@"; }
  $ state() { grep -o '"state": "[a-z]*"' $1/manifest.json; }
  $ start() { env --default-signal=HUP,INT,XCPU fp16lab train -c small.toml --threads 1 -o $1 --set \
  > train.steps=1000000 --set checkpoint.every=2 > out 2> err & pid=$!; reach $1 5; }
  $ reach() { until [ -e $1/steps.csv ] && [ $(wc -l < $1/steps.csv) -gt $2 ]; do kill -0 $pid || break
  > sleep 0.01; done; }

A run goes on without stderr, and without a reader of it.

  $ train whole > out 2>&1; cut -d , -f 1-9 whole/steps.csv > expected
  $ same() { cut -d , -f 1-9 $1/steps.csv | cmp - expected; state $1; }
  $ train one > out 2> /dev/full && same one
  "state": "finished"
  $ train two > out 2>&- && same two
  "state": "finished"
  $ train three <&- >&- 2>&- && same three
  "state": "finished"
  $ { sleep 0.05; train four; echo $? > code; } 2>&1 > out | true; cat code; same four
  0
  "state": "finished"
  $ { sleep 0.05; train five --live=always; echo $? > code; } 2>&1 > out | true; cat code; same five
  0
  "state": "finished"

No file gets the text of a closed descriptor, and errors keep their exit codes.

  $ (exec fp16lab train -c small.toml -o closed --set train.steps=1000000 <&- >&- 2>&-) & pid=$!
  > reach closed 5
  $ of_json '"process" in x' < closed/claim.json; wc -l < closed/claim.json; kill -TERM $pid; wait $pid
  > echo $?; state closed; ls closed/claim.json
  true
  1
  130
  "state": "stopped"
  ls: cannot access 'closed/claim.json': No such file or directory
  [2]
  $ for lost in '2> /dev/full' '2>&-'; do for command in trian 'report nosuch' 'hist nosuch'
  > do eval fp16lab $command $lost; echo $?; done; done | xargs
  2 2 2 2 2 2

Data that cannot be written are an error, in silence where a reader has left (`| head`); a lost result loses no run.

  $ for command in 'list config_keys' 'inspect 1 --json' --help 'policy --list' 'completion bash'
  > do fp16lab $command > /dev/full; echo $?
  > fp16lab $command >&-; echo $?; { sleep 0.05; fp16lab $command 2> err; echo $? >> err; } | true; cat err
  > done | sort | uniq -c
  fp16lab: error: cannot write to the standard output: No space left on device
  fp16lab: error: cannot write to the standard output: Bad file descriptor
  fp16lab: error: cannot write to the standard output: No space left on device
  fp16lab: error: cannot write to the standard output: Bad file descriptor
  fp16lab: error: cannot write to the standard output: No space left on device
  fp16lab: error: cannot write to the standard output: Bad file descriptor
  fp16lab: error: cannot write to the standard output: No space left on device
  fp16lab: error: cannot write to the standard output: Bad file descriptor
  fp16lab: error: cannot write to the standard output: No space left on device
  fp16lab: error: cannot write to the standard output: Bad file descriptor
       15 1
  $ train lost --quiet > /dev/full; state lost; fp16lab train --resume -o lost --quiet > out
  fp16lab: error: cannot write to the standard output: No space left on device
  "state": "finished"
  fp16lab: lost: this run has finished after 40 steps; nothing is left to do
  $ printf \
  > '[[workload]]\nname = "small"\nconfig = "small.toml"\n[[variant]]\nname = "one"\nset = ["amp.level=O1"]\n' \
  > > sweep.toml
  $ fp16lab sweep -c sweep.toml -o sweep --quiet --report > /dev/full 2> err; echo $?
  > grep -c 'cannot write to the standard output' err
  1
  1
  $ grep -c 'one: FP16' sweep/summary.csv; grep -c '</html>' sweep/report.html
  1
  1
  $ fp16lab sweep -c sweep.toml -o sweep2 <&- >&- 2>&-; grep -c 'one: FP16' sweep2/summary.csv
  1

A hangup and the limit of processor time save the run, sent twice or not; what was ignored stays ignored. A
sweep passes a hangup on.

  $ for signal in HUP XCPU; do start $signal; kill -$signal $pid; kill -$signal $pid; wait $pid; echo $?
  > state $signal; grep -o 'interrupted with state saved' err
  > [ $(column step $signal/steps.csv | tail -1) = $(ls $signal/checkpoints | tail -1 |
  > grep -o '[1-9][0-9]*') ] || echo 'the last step is not in the checkpoint'; done
  130
  "state": "stopped"
  interrupted with state saved
  130
  "state": "stopped"
  interrupted with state saved
  $ (ulimit -S -t 1; exec fp16lab train -c small.toml --threads 1 -o cpu --set train.steps=100000000 --quiet \
  > > out 2> err); echo $?; state cpu
  130
  "state": "stopped"
  $ (trap '' HUP XCPU INT; exec fp16lab train -c small.toml --threads 1 -o ignored --set train.steps=1000000 \
  > > out 2> err) & pid=$!; reach ignored 5
  $ for signal in HUP XCPU INT; do kill -$signal $pid; done
  > reach ignored $(($(wc -l < ignored/steps.csv) + 20)); kill -0 $pid; kill -TERM $pid; wait $pid
  [130]
  $ env --default-signal=HUP fp16lab sweep -c sweep.toml -o hung --set train.steps=1000000 --set \
  > checkpoint.every=2 > out 2> err & pid=$!
  $ reach hung/small-one-seed1 5; kill -HUP $pid; wait $pid; echo $?; state hung/small-one-seed1
  > grep -o '[^;]* continues' hung/small-one-seed1/manifest.json; ls hung/small-one-seed1/claim.json
  130
  "state": "stopped"
   the same command continues
  ls: cannot access 'hung/small-one-seed1/claim.json': No such file or directory
  [2]
  $ mkfifo pipe; env --default-signal=INT fp16lab train -c small.toml -o piped --dump-initial pipe > out \
  > 2> err & pid=$!; sleep 0.3; kill -INT $pid; wait $pid; echo $?; tail -1 err
  130
  fp16lab: error: cannot write to pipe: Interrupted system call

A file that may not grow is an error.

  $ (ulimit -f 100; exec fp16lab train -c small.toml -o grown --quiet --set train.steps=1000000 --set \
  > observe.histograms_every=0); echo $?; state grown
  fp16lab: error: cannot append to grown/steps.csv: File too large
  1
  "state": "failed"

The program reports missing memory before and after; a run that fits gets no warning.

  $ short() { (ulimit -v 700000; exec fp16lab train -c small.toml --threads 1 -o short --force "$@" 2>&1 \
  > > out); }
  $ short --set 'model.layer.mlp1.widths=[2000000, 10]' --set train.steps=1 |
  > sed 's/[0-9][0-9.]* \(GB\|MB\|bytes\)/N/g'
  warning: a step needs N of memory for tensors, and this process (RLIMIT_AS, ulimit -v) leaves N: the kernel may end the run, or it may run out of memory; a smaller train.batch_size or model needs less (fp16lab model shows how much)
  data: normal, drawn from seed 1: 10 batches of 20 examples an epoch, 64 inputs, 10 classes
  precision: O1 of torch with f16
  note: there is no loss scale (scaler.policy = none); training of this kind mostly uses one: scaler.policy=torch
  fp16lab: error: out of host memory: no block of N, N are in use
  $ short | grep -c warning
  0
  [1]
