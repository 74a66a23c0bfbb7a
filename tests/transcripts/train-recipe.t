`fp16lab train` with amp.recipe: linear layers multiply codes with scales for blocks, the run folder says what
each operand lost, and the account which lost most.

  $ . "$TESTDIR/setup.sh"
  $ small_config
  $ sets() { for set; do printf ' --set %s' "$set"; done; }

  $ fp16lab train -c small.toml -o run --quiet --set amp.recipe=nvfp4 > summary 2> told
  $ wc -l < run/recipe.jsonl; head -3 run/recipe.jsonl | cut -d , -f 1-6
  30
  {"step":1,"tensor":"fc1.input","product":"forward","values":1280,"made_zero":100,"saturated":0
  {"step":1,"tensor":"fc1.weight","product":"forward","values":1024,"made_zero":44,"saturated":0
  {"step":1,"tensor":"fc1.output","product":"dw","values":320,"made_zero":55,"saturated":0
  $ small plain; column state_hash run/steps.csv > a; column state_hash plain/steps.csv > b; cmp -s a b || echo differ
  differ
  $ ls plain/recipe.jsonl
  ls: cannot access 'plain/recipe.jsonl': No such file or directory
  [2]
  $ fp16lab hist run 2>&1 | grep recipe
  The recipe zeroed 9.9 % of fc1.output in the product dw, more than of any other operand (6.8 % of all). No block saturated.

Threads change no bit, and neither does a kill: a continued run has the rows of the whole one.

  $ small two --set amp.recipe=nvfp4 --threads 2; cmp run/recipe.jsonl two/recipe.jsonl
  > column state_hash two/steps.csv | cmp - a
  $ for recipe in te-delayed nvfp4
  > do small whole-$recipe --set amp.recipe=$recipe
  > small part-$recipe $(sets amp.recipe=$recipe train.steps=20 checkpoint.every=10)
  > fp16lab train --resume -o part-$recipe --quiet --set train.steps=40 > /dev/null
  > column state_hash whole-$recipe/steps.csv > a; column state_hash part-$recipe/steps.csv | cmp - a
  > cmp whole-$recipe/recipe.jsonl part-$recipe/recipe.jsonl
  > done

Keys that do not go together.

  $ refuse() { refused train -c small.toml -o no $(sets "$@"); [ ! -e no ] || echo 'but a folder is left'; }
  $ refuse amp.recipe=nvfp5
  fp16lab: error: --set: amp.recipe = "nvfp5": expected one of none, mxfp8, mxfp8-hybrid, mxfp6-e3m2, mxfp6-e2m3, mxfp4, nvfp4, deepseek-fp8, te-delayed, te-current, te-block; did you mean 'nvfp4'?
  $ refuse amp.recipe=nvfp4 amp.level=O0
  fp16lab: error: --set: amp.recipe=nvfp4: amp.level = O0 does not read it; OD, O1, O2, O3, auto, auto-r1.7 do
  $ refuse amp.recipe=nvfp4 amp.dtype=tf32
  fp16lab: error: small.toml with --set: amp.recipe = "nvfp4": with amp.dtype = "tf32" no product has 16-bit operands; choose f16 or bf16
  $ refuse amp.recipe=nvfp4 amp.fp8_operands=e4m3 amp.fp8_gradients=e5m2
  fp16lab: error: small.toml with --set: amp.recipe = "nvfp4": amp.fp8_operands and amp.fp8_gradients round the same operands, without scales; expected one of the two
  $ refuse amp.recipe=nvfp4 backend.device=cuda
  fp16lab: error: small.toml with --set: amp.recipe = "nvfp4" with backend.device = "cuda": operands with scales for blocks are emulated only; expected backend.device = "emulated"
  $ refuse amp.recipe=nvfp4 amp.dtype=bf16 backend.tensor_core=avx512_bf16 backend.library=onednn
  fp16lab: error: small.toml with --set: amp.recipe = "nvfp4" with backend.library = "onednn": its plan has no rule for operands with scales for blocks; expected backend.library = "instruction"
  $ refuse amp.recipe=nvfp4 parallel.shards=2
  fp16lab: error: small.toml with --set: amp.recipe = "nvfp4" with parallel.shards = 2: the scale of a tensor would be that of the shards that a rank has; expected parallel.shards = 1
  $ refuse amp.recipe=nvfp4 train.graph=true
  fp16lab: error: small.toml with --set: amp.recipe = "nvfp4" with train.graph = true: the host keeps what operands lost, which a recorded step would not tell it; expected train.graph = false
  $ refuse amp.recipe=nvfp4 amp.recipe_wide=fc3
  fp16lab: error: amp.recipe_wide = "fc3": no layer of the network has such a name; layers: known are fc1, fc2, loss; did you mean 'fc1'?
  $ refuse amp.recipe=mxfp8 amp.recipe_hadamard=false
  fp16lab: error: --set: amp.recipe_hadamard=false: amp.recipe = mxfp8 does not read it; nvfp4 does
  $ refuse amp.recipe_wide=fc1
  fp16lab: error: --set: amp.recipe_wide=fc1: amp.recipe = none does not read it; mxfp8, mxfp8-hybrid, mxfp6-e3m2, mxfp6-e2m3, mxfp4, nvfp4, deepseek-fp8, te-delayed, te-current, te-block do
