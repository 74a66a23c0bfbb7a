What would be ignored in silence is refused: patterns without a match, parameters that a policy does not have,
empty and impossible values. Exit code 2, one line, and no run folder.

  $ . "$TESTDIR/setup.sh"
  $ small_config
  $ sets() { for set; do printf ' --set %s' "$set"; done; }
  $ refuse() { refused train -c small.toml -o run $(sets "$@"); [ ! -e run ] || echo 'but a folder is left'; }
  $ take() { fp16lab train -c small.toml -o taken --force --quiet $(sets train.steps=1 "$@") > /dev/null; }

Patterns name layers, parameters or ops that there are; the message says which.

  $ for set in amp.excluded=nosuch amp.excluded=FC2 'amp.excluded=["fc1","fc"]' amp.to_float=nosuch=f32 \
  > amp.white=FC \
  > amp.black=Softmax; do refuse $set; done
  fp16lab: error: amp.excluded = "nosuch": no layer or parameter of the network has such a name; layers: known are fc1, fc2, loss
  fp16lab: error: amp.excluded = "FC2": no layer or parameter of the network has such a name; layers: known are fc1, fc2, loss; did you mean 'fc2'?
  fp16lab: error: amp.excluded = "fc": no layer or parameter of the network has such a name; layers: known are fc1, fc2, loss; did you mean 'fc1'?
  fp16lab: error: amp.to_float = "nosuch": no layer or parameter of the network has such a name; layers: known are fc1, fc2, loss
  fp16lab: error: small.toml with --set: amp.white = "FC": no op of this name, neither ours nor torch's
  fp16lab: error: small.toml with --set: amp.black = "Softmax": no op of this name, neither ours nor torch's; did you mean 'softmax'?
  $ refuse amp.use_guard=true 'amp.guard=fc3*'
  fp16lab: error: amp.guard = "fc3*": no layer or parameter of the network has such a name; layers: known are fc1, fc2, loss
  $ refuse scaler.policy=groups scaler.groups=FC1.weight=2^8
  fp16lab: error: scaler.groups = "FC1.weight=256": it matches no weight that an earlier pattern has not taken; weights: known are fc1.weight, fc2.weight; did you mean 'fc1.weight'?
  $ for set in amp.excluded=fc1 'amp.excluded=fc*' 'amp.excluded=*2' amp.excluded=loss amp.to_float=fc2=f32
  > do take "$set"; done

Names of parameters say nothing where no parameter is low, lists nothing at a level that reads none, and an
entry nothing from which later ones take all names.

  $ refuse amp.excluded=fc1.weight
  fp16lab: error: amp.excluded = "fc1.weight": it names parameters only (fc1.weight), which are FP32 at O1 anyway; name their layers: known are fc1, fc2, loss
  $ refuse amp.level=O0 amp.excluded=fc1
  fp16lab: error: --set: amp.excluded=fc1: amp.level = O0 does not read it; OD, O1, O2, O3, auto, auto-r1.7 do, and so does any amp.to_float
  $ for list in '["fc1=f32","fc1=f16"]' 'fc1=f32,fc2=f32,fc*=f16'; do (set -f; refuse "amp.to_float=$list")
  > done
  fp16lab: error: amp.to_float = "fc1=f32": later entries take all that it names, and the last match counts; leave it out, or put it after them
  fp16lab: error: amp.to_float = "fc1=f32": later entries take all that it names, and the last match counts; leave it out, or put it after them
  $ take 'amp.excluded=*.bias' amp.level=O2 amp.dialect=paddle
  $ take 'amp.excluded=*.bias' amp.level=O0 amp.to_float=fc1=f16
  $ take 'amp.to_float=fc*=f16,fc1=f32'

Networks that cannot be: `model` says the same line.

  $ for widths in [4611686018427387904,10] [2147483647,2147483647,10] [67108864,8388608,10]
  > do refuse model.layer.mlp1.widths=$widths
  > refused train -c small.toml -o run --set model.layer.mlp1.widths=$widths |
  > sed 's/.*error/error/' > trained
  > refused model small.toml --set model.layer.mlp1.widths=$widths | sed 's/.*error/error/' | cmp - trained
  > done
  fp16lab: error: --set: layer of type mlp: widths = [4611686018427387904, 10]: expected a list of integers from 1 to 2147483647
  fp16lab: error: --set: layer 'mlp1' (mlp): shape (2147483647, 2147483647): expected at most 2^48 elements; the network's input gives (N, 64)
  fp16lab: error: --set: layer 'mlp1' (mlp): shape (8388608, 67108864): expected at most 2^48 elements; the network's input gives (N, 64)
  $ refuse model.layer.mlp1.widths=[11]
  fp16lab: error: the network ends with (N, 11), 'mlp1' (mlp); expected (N, 10), what cross_entropy is compared with in normal
  $ refuse model.layer.mpl1.widths=[10]
  fp16lab: error: --set: model.layer.mpl1.widths: expected model.layer.NAME.ARGUMENT or model.block.NAME.repeat of a row or block with that name; did you mean 'model.layer.mlp1'?

Parameters are the policy's own. What belongs to a file's own policy need not be taken back where `--set`
chooses another one, and what the file leaves to a policy that `--set` chooses is used.

  $ refuse scaler.policy=torch scaler.hysteresis=3
  fp16lab: error: --set: scaler.hysteresis=3: policy torch has no parameter 'hysteresis': known are initial_scale, growth_factor, backoff_factor, growth_interval, min_scale, max_scale, finite_guard
  $ refuse scaler.hysteresis=3 scaler.policy=fixed
  fp16lab: error: --set: scaler.hysteresis=3: policy fixed has no parameter 'hysteresis': known are initial_scale, min_scale, max_scale, finite_guard
  $ take scaler.policy=megatron scaler.hysteresis=3
  $ own() { (cat small.toml && printf "[scaler]\n$1\n") > own.toml; shift
  > "$@" train -c own.toml -o taken --force --quiet $more; }
  $ own 'policy = "torch"\nhysteresis = 3' refused
  fp16lab: error: own.toml: scaler.hysteresis = 3.0: policy torch has no parameter 'hysteresis': known are initial_scale, growth_factor, backoff_factor, growth_interval, min_scale, max_scale, finite_guard
  $ more='--set train.steps=1 --set scaler.policy=none' own 'policy = "megatron"\nhysteresis = 3' fp16lab \
  > > /dev/null
  $ more='--set train.steps=1 --set scaler.policy=megatron' own 'hysteresis = 3' fp16lab > /dev/null

Schedules fit the run, and numerics have a meaning where they are asked for.

  $ refuse schedule.name=cosine schedule.warmup_steps=40
  fp16lab: error: train.steps = 40: schedule.name = "cosine" needs more steps than schedule.warmup_steps = 40 where schedule.total_steps is not set
  $ refuse schedule.name=cosine schedule.warmup_steps=40 train.steps=0 train.epochs=4
  fp16lab: error: train.epochs = 4, of 40 steps: schedule.name = "cosine" needs more steps than schedule.warmup_steps = 40 where schedule.total_steps is not set
  $ refuse schedule.name=cosine schedule.warmup_steps=40 schedule.total_steps=30
  fp16lab: error: schedule.total_steps = 30: must be above warmup_steps = 40 for cosine
  $ refuse schedule.name=step
  fp16lab: error: schedule.step_interval = 0: must be >= 1 for step
  $ for name in linear polynomial; do refuse schedule.name=$name schedule.warmup_steps=40; done
  fp16lab: error: train.steps = 40: schedule.name = "linear" needs more steps than schedule.warmup_steps = 40 where schedule.total_steps is not set
  fp16lab: error: train.steps = 40: schedule.name = "polynomial" needs more steps than schedule.warmup_steps = 40 where schedule.total_steps is not set
  $ refuse optimizer.kahan=true
  fp16lab: error: small.toml with --set: optimizer.kahan = true: it sums updates of 16-bit weights, but with amp.level = "O1" of torch the weights that are updated are FP32; expected optimizer.kahan = false, or a level with a 16-bit model and amp.master_weights = false
  $ refuse optimizer.nesterov=true optimizer.dampening=0.5
  fp16lab: error: optimizer.dampening = 0.500000: must be 0 with nesterov
  $ refuse amp.rounding=stochastic amp.level=O0
  fp16lab: error: --set: amp.rounding=stochastic: amp.level = O0 does not read it; OD, O1, O2, O3, auto, auto-r1.7 do, and so does any amp.to_float
  $ refuse amp.rounding=stochastic_weights
  fp16lab: error: small.toml with --set: amp.rounding = "stochastic_weights": it rounds updates of 16-bit weights, but at torch's O1 the weights that are updated are FP32; expected another one, or a level with a 16-bit model and amp.master_weights = false
  $ refuse optimizer.kahan=true amp.rounding=stochastic amp.level=O2 amp.dialect=paddle \
  > amp.master_weights=false
  fp16lab: error: small.toml with --set: optimizer.kahan = true with amp.rounding = "stochastic": both recover what rounding weights to nearest loses; expected one of the two, or "stochastic_gradients" with Kahan's sums
  $ refuse amp.dtype=tf32 amp.level=O2 amp.dialect=paddle
  fp16lab: error: small.toml with --set: amp.dtype = "tf32": no tensor is stored in TF32, but at paddle's O2 the model is low; expected f16 or bf16, or amp.level = "O1", where products alone are TF32
  $ refuse amp.dtype=tf32 backend.tensor_core=turing
  fp16lab: error: small.toml with --set: amp.dtype = "tf32" with backend.tensor_core = "turing": these tensor cores have no tf32 products; expected one of ampere, ada, hopper, * (glob)
  $ refuse amp.dtype=tf32 backend.accumulator=f16
  fp16lab: error: small.toml with --set: backend.accumulator = "f16" with TF32: tensor cores sum products of TF32 in FP32 only; expected backend.accumulator = "f32", or FP16 in amp.dtype and amp.to_float

Numbers are in range, and those that FP32 takes are held by it.

  $ for options in '--threads 100000' '--threads 99999999999999999999' '--threads 0' \
  > '--seed 9007199254740992' '--seed -1' '--seed x'
  > do refused train -c small.toml -o run $options; done
  fp16lab: error: --threads: '100000': expected an integer from 1 to 1024
  fp16lab: error: --threads: '99999999999999999999': expected an integer from 1 to 1024
  fp16lab: error: --threads: '0': expected an integer from 1 to 1024
  fp16lab: error: --seed: '9007199254740992': expected an integer from 0 to 9007199254740991
  fp16lab: error: --seed: '-1': expected an integer, 0 or more
  fp16lab: error: --seed: 'x': expected an integer, 0 or more
  $ for set in train.seed=9007199254740992 train.steps=9007199254740993 train.batch_size=0 optimizer.lr=-1 \
  > train.clip_value=1e308 train.clip_value=1e-60 optimizer.beta1=0.9999999999 scaler.initial_scale=0.1
  > do refuse $set; done
  fp16lab: error: --set: train.seed = 9007199254740992: expected integers up to 9007199254740991
  fp16lab: error: --set: train.steps = 9007199254740993: expected integers up to 9007199254740991
  fp16lab: error: --set: train.batch_size = 0: expected an integer, from 1 to 2147483647
  fp16lab: error: --set: optimizer.lr = -1: expected a number, 0 or more
  fp16lab: error: --set: train.clip_value = 1e+308: expected a number, 0 or more, also in FP32, which holds 2^-149 to 3.4028235e+38 and would turn it into inf
  fp16lab: error: --set: train.clip_value = 1e-60: expected a number, 0 or more, also in FP32, which holds 2^-149 to 3.4028235e+38 and would turn it into 0
  fp16lab: error: --set: optimizer.beta1 = 0.9999999999: expected a number, from 0 to 1 (excluded), also in FP32, which holds 2^-149 to 3.4028235e+38 and would turn it into 1
  fp16lab: error: --set: scaler.initial_scale = 0.1: expected an FP32 number; the nearest ones are 0.09999999403953552 and 0.10000000149011612
  $ for threshold in nan inf -0.5 x 1e999; do refused compare a b --threshold $threshold; done
  fp16lab: error: --threshold: 'nan': expected a finite number, 0 or more
  fp16lab: error: --threshold: 'inf': expected a finite number, 0 or more
  fp16lab: error: --threshold: '-0.5': expected a finite number, 0 or more
  fp16lab: error: --threshold: 'x': expected a finite number, 0 or more
  fp16lab: error: --threshold: '1e999': expected a finite number, 0 or more
  $ fp16lab list config_keys '*' | grep -c 9007199254740991
  1
  $ printf \
  > '[[workload]]\nname = "a"\nconfig = "small.toml"\nseeds = [9007199254740992]\n[[variant]]\nname = "b"\n' \
  > > seeds.toml
  $ refused sweep -c seeds.toml
  fp16lab: error: seeds.toml:4: seeds: expected a list of integers from 0 to 9007199254740991
  $ sed 's/\] }\]/] }, { type = "layer_norm", eps = 1e308 }]/' small.toml > eps.toml
  > refused train -c eps.toml -o run
  fp16lab: error: eps.toml:2: layer of type layer_norm: eps = 1e+308: expected a number that FP32 holds

With so many threads as are allowed a run still comes to its end.

  $ small many --threads 1024 --set train.steps=2

Names that are misspelt, in files and on the command line.

  $ for set in amp.level=O7 backend.tensor_core=hoper; do refuse $set; done
  fp16lab: error: --set: amp.level = "O7": expected one of O0, OD, O1, O2, O3, auto, auto-r1.7
  fp16lab: error: --set: backend.tensor_core = "hoper": expected one of auto, volta, turing, ampere, *; did you mean 'hopper'? (glob)
  $ printf '[train]\nseed = 1\n\n\n\n[scaler]\npolcy = "none"\n' > bad.toml; refused train -c bad.toml
  fp16lab: error: bad.toml:7: unknown key 'scaler.polcy'; did you mean 'scaler.policy'?
  $ printf '[train]\nbatch_size = "big"\n' > type.toml; refused train -c type.toml
  > refused train -c absent.toml
  fp16lab: error: type.toml:2: train.batch_size = 'big': expected an integer, from 1 to 2147483647
  fp16lab: error: --config absent.toml: there is no such file; did you mean 'bad.toml'?
  $ printf '[[workload]]\nname = "small"\nconfig = "small.toml"\n[[variant]]\nname = "a"\n' > grid.toml
  > refused train -c grid.toml
  fp16lab: error: grid.toml: this is a sweep: fp16lab sweep -c grid.toml
  $ refused sweep -c small.toml --policies tourch
  fp16lab: error: --policies: no policy 'tourch'; did you mean 'torch'?

Names of files and folders are not empty.

  $ for command in 'train -c' 'train -c small.toml -o' 'sweep -c' 'replay run -o' report replay \
  > 'compare run' \
  > 'train -c small.toml --tensorboard' 'train -c small.toml --dump-initial' \
  > 'train -c small.toml --dump-gradients 1'
  > do refused $command ''; done
  fp16lab: error: --config: '': expected a file
  fp16lab: error: --out: '': expected a folder
  fp16lab: error: --config: '': expected a file
  fp16lab: error: --out: '': expected a folder
  fp16lab: error: RUN: '': expected a folder
  fp16lab: error: RUN: '': expected a folder
  fp16lab: error: B: '': expected a folder
  fp16lab: error: --tensorboard: '': expected a folder
  fp16lab: error: --dump-initial: '': expected a file
  fp16lab: error: --dump-gradients: '': expected a file

The line is short wherever a long name or value is in it.

  $ name=$(head -c 40000 /dev/zero | tr '\0' x)
  $ for command in NAME 'train --NAME' 'train NAME' 'train -o NAME' 'train --threads NAME' \
  > 'train --set NAME=1' \
  > 'train --set train.NAME=1' 'train --set train.steps=NAME' 'train --set scaler.policy=NAME' \
  > 'train --set amp.white=NAME' \
  > 'train --set amp.excluded=NAME' 'train --set model.layer.NAME.widths=[1]' 'train --set data.path=NAME' \
  > 'list NAME' \
  > 'list policies NAME' 'hist NAME' 'replay NAME' 'report NAME' 'compare NAME NAME' 'help NAME' \
  > 'mma --model NAME' \
  > 'softfloat NAME' 'inspect NAME' 'policy --policy NAME' 'policy --policy torch --set NAME=1' \
  > 'sweep -c NAME'; do
  > case $command in train*) file='-c small.toml';; *) file=;; esac
  > fp16lab $(echo $command $file | sed "s/NAME/$name/g") > stdout 2> stderr && echo "$command is taken"
  > grep -q 'error: ' stderr && awk 'END { exit NR != 1 || length > 2100 }' stderr || { echo "$command" &&
  > cat stderr; }; done
  $ (printf '[[workload]]\nname = "a"\nconfig = "small.toml"\nvariants = [' && seq -f '"v%.0f",' 5000 &&
  > printf ']\n[[variant]]\nname = "b"\n') > many.toml && refused sweep -c many.toml
  fp16lab: error: many.toml:1: variants: there is no [[variant]] with the name 'v1'
