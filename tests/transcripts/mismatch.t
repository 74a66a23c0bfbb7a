`fp16lab mismatch` says how far two engines' log-probabilities are apart, and which setting makes the distance.

  $ . "$TESTDIR/setup.sh"
  $ small run --set checkpoint.every=20

Equal engines give exactly 0, and a setting that evaluates nothing does too; what one cause makes is found
alone, with nothing left without it.

  $ fp16lab mismatch run --b backend.tensor_core=hopper
  run: after step 40, 200 targets in 10 batches
  log-probabilities, b against a: mean distance 0 (all equal)
  mean difference 0, largest 0 (target 0), importance ratios outside of 1/2 to 2: 0 %
  control, a with every weight moved by one ulp: 0 (all equal)
  
  cause                       alone          without it     interplay
  backend.tensor_core=hopper  0 (all equal)  0 (all equal)  0
  $ fp16lab mismatch run --b scaler.policy=none --b backend.tensor_core=volta
  run: after step 40, 200 targets in 10 batches
  log-probabilities, b against a: mean distance 3.68e-08 [-4.65e-08, 1.2e-07]
  mean difference -3.68e-08, largest 7.37e-06 (target 122), importance ratios outside of 1/2 to 2: 0 %
  control, a with every weight moved by one ulp: 0 (all equal)
  
  cause                      alone                          without it                     interplay
  backend.tensor_core=volta  3.68e-08 [-4.65e-08, 1.2e-07]  0 (all equal)                  0
  scaler.policy=none         0 (all equal)                  3.68e-08 [-4.65e-08, 1.2e-07]  0
  $ fp16lab mismatch run --b scaler.policy=none --b 'amp.excluded=["fc2"]' --json |
  > of_json '[(c["setting"], c["alone"]["mean_magnitude"] == x["b"]["mean_magnitude"] > 0,
  >           c["without"]["mean_magnitude"] == 0, c["interplay"] == 0) for c in x["causes"]]' 'x["step"]' 'x["targets"]'
  [["amp.excluded=[\"fc2\"]", true, true, true], ["scaler.policy=none", false, false, true]]
  40
  200

Two causes that meet: the table says what each does alone, and what is left when it alone is taken away.

  $ fp16lab mismatch run --b amp.dtype=bf16 --b 'amp.excluded=["fc2"]' --band 1.001
  run: after step 40, 200 targets in 10 batches
  log-probabilities, b against a: mean distance 0.00134 [0.00124, 0.00144]
  mean difference 1.95e-05, largest 0.00504 (target 2), importance ratios outside of 1/1.001 to 1.001: 54.5 %
  control, a with every weight moved by one ulp: 0 (all equal)
  
  cause                 alone                          without it                     interplay
  amp.dtype=bf16        0.00224 [0.00198, 0.00251]     0.000206 [0.000184, 0.000228]  -0.0011
  amp.excluded=["fc2"]  0.000206 [0.000184, 0.000228]  0.00224 [0.00198, 0.00251]     -0.0011

In a run's folder the split is part of its page, as a figure too. A file that is something else is told apart.

  $ fp16lab mismatch run --b amp.dtype=bf16 --b 'amp.excluded=["fc2"]' -o run > /dev/null
  $ fp16lab report run --quiet > /dev/null && ls run/figures | grep mismatch
  mismatch-classifier-on-normal-fp16-no-scaling.figure.json
  mismatch-classifier-on-normal-fp16-no-scaling.png
  mismatch-classifier-on-normal-fp16-no-scaling.svg
  $ sed -i '0,/"mean_magnitude": [^,]*/s//"mean_magnitude": "NaN"/' run/mismatch.json; fp16lab report run --quiet > /dev/null
  $ echo '{"b": 3}' > run/mismatch.json; failed report run --quiet
  fp16lab: error: run/mismatch.json: not what fp16lab mismatch writes: key 'targets' not found
  $ echo '{' > run/mismatch.json; failed report run --quiet
  fp16lab: error: run/mismatch.json: not valid JSON at byte 3
  $ rm run/mismatch.json

Without checkpoints the weights are the first ones. What has no log-probabilities, or changes the data, is refused.

  $ small first --set train.steps=1
  $ fp16lab mismatch first --b amp.dtype=bf16 | head -1
  first: initial weights, 200 targets in 10 batches
  $ refused mismatch nowhere --b amp.dtype=bf16
  fp16lab: error: nowhere: no such run folder
  $ refused mismatch run
  fp16lab: error: mismatch: expected what engine b does otherwise: --b KEY=VALUE
  $ refused mismatch run --b amp.dtype=bf16 --band 0.5
  fp16lab: error: --band 0.5: expected 1 or more
  $ refused mismatch run --b train.seed=7
  fp16lab: error: mismatch: the settings of b change the data; settings of amp, backend or another train.batch_size leave the targets as they are
  $ refused mismatch run --b amp.dtype=f8
  fp16lab: error: --b: amp.dtype = "f8": expected one of f16, bf16, tf32
  $ sed -i "s/16, 10/16, 1/" small.toml
  $ small errors --set model.loss=mse --set data.classes=0 --set train.steps=1
  $ refused mismatch errors --b amp.dtype=bf16
  fp16lab: error: errors: log-probabilities are of classes or symbols: a run with cross_entropy, and with test data, is needed
  $ numbers() { for i in $(seq $2); do printf ' %s' $1; done; }
  $ arrays soft.npz "x_train=<f4 40,8$(numbers 1 320)" "y_train=<f4 40,4$(numbers 0.25 160)" \
  > "x_test=<f4 20,8$(numbers 1 160)" "y_test=<f4 20,4$(numbers 0.25 80)"
  $ printf '%s\n' '[model]' 'layer = [{ type = "mlp", widths = [4] }]' '[data]' 'name = "arrays"' 'path = "soft.npz"' \
  > '[train]' 'batch_size = 20' 'steps = 1' '[amp]' 'level = "O1"' > small.toml
  $ small soft
  $ refused mismatch soft --b amp.dtype=bf16
  fp16lab: error: mismatch: the test data have soft labels; targets that are classes are needed
