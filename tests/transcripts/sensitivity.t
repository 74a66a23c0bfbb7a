`fp16lab sensitivity` says which layers of a run need FP32.

  $ . "$TESTDIR/setup.sh"

A tame run needs none, and stays as it is. A margin that FP16's own rounding exceeds asks for both layers.

  $ small tame --set checkpoint.every=20
  $ cp tame/manifest.json before
  $ fp16lab sensitivity tame
  tame: step 41, O1, loss scale 2^0, against all layers in FP32; margin 0.05
  as it is: error of the loss 4.8e-05, error of the gradients 0.00053 (fc1.weight)
  No layer needs FP32.
  $ cmp before tame/manifest.json
  $ fp16lab sensitivity tame --margin 1e-9 --json |
  > of_json 'x["layers"]' 'x["restored"]' 'x["within"]["gradients"] < 1e-9' 'x["without"]["gradients"] > 1e-5'
  ["fc1", "fc2"]
  true
  true
  true

At a scale of 2^40 the first step overflows. The list clears it, and each layer of it is needed: training
runs with the list, and with all of it but one, say the same.

  $ overflows() { small $1 --set scaler.policy=fixed --set scaler.initial_scale=2^40 --set train.steps=2 $2 \
  > 2>/dev/null
  > sed -n '2s/^1,[^,]*,[^,]*,\(.\).*/\1/p' $1/steps.csv; }
  $ overflows high
  1
  $ fp16lab sensitivity high
  high: step 1, O1, loss scale 2^40, against all layers in FP32; margin 0.05
  as it is: error of the loss 6.3e-06, error of the gradients inf (fc1.weight)
  in FP32: fc1, fc2
  then: error of the loss 0, error of the gradients 0; each of them is needed (4 steps tried)
  
  layer  error with it alone in 16 bits
  fc1    inf
  fc2    inf
  
  Next: fp16lab train -c high/config.toml --set amp.excluded=fc1,fc2
  $ fp16lab sensitivity high --json | of_json '[x["step"], x["without"]["gradients"], x["layers"]]'
  [1, "Infinity", ["fc1", "fc2"]]
  $ overflows both --set=amp.excluded=fc1,fc2; overflows one --set=amp.excluded=fc1
  > overflows other --set=amp.excluded=fc2
  0
  1
  1

What is no run, or computes in FP32, is refused.

  $ refused sensitivity nowhere
  fp16lab: error: nowhere: no such run folder
  $ small wide --set amp.level=O0 --set train.steps=1
  $ refused sensitivity wide
  fp16lab: error: wide: amp.level is O0, which computes in FP32: there is no layer to test
