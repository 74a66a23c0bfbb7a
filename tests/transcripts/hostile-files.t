Files received from others: pipes, links, folders and depth where a file is expected end in one line, in time,
and nothing is written through them.

  $ . "$TESTDIR/setup.sh"
  $ small_config
  $ sed -i 's/= 40/= 4/; s/_every = 20/_every = 2/' small.toml

A command that is asked ends within 20 seconds (124: timeout), with 0 or one line; its words are ours. It
finds no program that draws, which would take most of the time.

  $ fp16lab=$(command -v fp16lab)
  $ ask() { timeout -k 1 20 env PATH=${path-/nowhere} "$fp16lab" "$@" > stdout 2> stderr; code=$?
  > [ $code = 0 ] && return
  > [ $code -lt 124 ] && awk '/filesystem error/ { bad = 1 } END { exit bad || NR != 1 }' stderr &&
  > grep -q 'error: ' stderr || { echo "$@: $code" && cat stderr; }
  > return $code; }
  $ refuses() { ask "$@" && echo "$*: taken"; grep -o "$part.*" stderr; }
  $ small run --set checkpoint.every=2; fp16lab replay run -o run --quiet > /dev/null

A FIFO in a run folder hangs no command, and stays.

  $ for name in manifest.json config.toml steps.csv evaluations.csv histograms.jsonl overflows.jsonl \
  > checkpoints/step-000004.safetensors replay.json claim.json; do
  > [ ! -e run/$name ] || mv run/$name away; mkfifo run/$name
  > for command in 'report run -o page' 'hist run' 'replay run' 'compare run run'; do ask $command; done
  > part= refuses train --resume -o run --set train.steps=6
  > [ -p run/$name ] || echo "$name: no FIFO any more"
  > rm run/$name; [ ! -e away ] || mv away run/$name; done
  fp16lab: error: --resume: cannot write run/manifest.json: it is a FIFO; in a folder of results expected a regular file, or nothing of that name
  fp16lab: error: --resume: cannot write run/config.toml: it is a FIFO; in a folder of results expected a regular file, or nothing of that name
  fp16lab: error: --resume: cannot write run/steps.csv: it is a FIFO; in a folder of results expected a regular file, or nothing of that name
  fp16lab: error: --resume: cannot write run/evaluations.csv: it is a FIFO; in a folder of results expected a regular file, or nothing of that name
  fp16lab: error: --resume: cannot write run/histograms.jsonl: it is a FIFO; in a folder of results expected a regular file, or nothing of that name
  fp16lab: error: --resume: cannot write run/overflows.jsonl: it is a FIFO; in a folder of results expected a regular file, or nothing of that name
  fp16lab: error: --resume: cannot write run/checkpoints/step-000004.safetensors: it is a FIFO; in a folder of results expected a regular file, or nothing of that name
  fp16lab: error: --resume: cannot write run/replay.json: it is a FIFO; in a folder of results expected a regular file, or nothing of that name
  fp16lab: error: --out: run/claim.json: not a regular file, so not written by this program; remove it, or choose another folder

A configuration may be a pipe, and its length is bounded; nothing else that is named may be one.

  $ mkfifo fifo; cat small.toml > fifo & ask train -c fifo -o piped && ls piped/manifest.json
  piped/manifest.json
  $ within 1000000 fp16lab train -c /dev/zero -o b
  fp16lab: error: --config: cannot read /dev/zero: it is longer than 67108864 bytes
  $ printf \
  > '[[workload]]\nname = "w"\nconfig = "fifo"\nseeds = [1]\nvariants = ["v"]\n[[variant]]\nname = "v"\n' \
  > > sweep.toml
  $ export part=fifo
  $ refuses train -c small.toml -o a --load-initial fifo
  fifo: not a regular file
  $ refuses train -c charlm_lstm -o a --set data.name=text --set data.path=fifo
  fifo: not a regular file (it is a FIFO)
  $ refuses hist fifo
  fifo: not a regular file
  $ refuses sweep -c sweep.toml -o s
  fifo: not a regular file (it is a FIFO)
  $ ls -d a
  ls: cannot access 'a': No such file or directory
  [2]

JSON and TOML that are nested too deep are one line.

  $ deep=$(head -c 100000 /dev/zero | tr '\0' '[') part='nested deeper.*'
  $ instead() { file=$1; shift; mv run/$file away; echo "$deep" > run/$file; refuses "$@"; mv away run/$file
  > }
  $ instead manifest.json report run -o page; instead histograms.jsonl hist run
  > instead replay.json report run -o page
  nested deeper than 64
  nested deeper than 64
  nested deeper than 64
  $ (echo '[train]'; printf a; yes .a | head -100000 | tr -d '\n'; echo ' = 1') > deep.toml
  $ refuses train -c deep.toml; refuses sweep -c deep.toml
  nested deeper than 64
  nested deeper than 64
  $ part='train.seed.*\[\[' refuses train -c small.toml --set "train.seed=$(echo "$deep" | head -c 99000)" |
  > cut -c 1-20
  train.seed = [[[[[[[

Nothing is written through links in a received folder: figures, the page, what a resumed run goes on with, a
replay.

  $ mkdir elsewhere out; echo mine > treasure; export part='a symbolic link.*'
  $ fp16lab report run > /dev/null 2>&1; cp -r run kept
  $ linked() { link=$1; target=$PWD/$2; shift 2; rm -rf $link; ln -s $target $link
  > refuses "$@" | sed "s|^|$link: |"
  > [ -h $link ] || echo "$link: no link any more"; rm $link
  > grep -qx mine treasure && [ -z "$(ls elsewhere)" ] || echo written; }
  $ linked run/figures elsewhere report run; linked run/report.html treasure report run
  run/figures: a symbolic link; inside a folder of results expected a folder, or nothing of that name
  run/report.html: a symbolic link; in a folder of results expected a regular file, or nothing of that name
  $ for figure in $(ls kept/figures | sort -t . -k 2 -u); do rm -rf run; cp -r kept run
  > path=$PATH linked run/figures/$figure treasure report run
  > done | sed 's/.*[.]//'
  dot: a symbolic link; in a folder of results expected a regular file, or nothing of that name
  json: a symbolic link; in a folder of results expected a regular file, or nothing of that name
  js: a symbolic link; in a folder of results expected a regular file, or nothing of that name
  png: a symbolic link; in a folder of results expected a regular file, or nothing of that name
  svg: a symbolic link; in a folder of results expected a regular file, or nothing of that name
  $ for name in weights.safetensors op_stats.csv steps.csv checkpoints; do rm -rf run; cp -r kept run
  > case $name in checkpoints) target=elsewhere;; *) target=treasure;; esac
  > linked run/$name $target train --resume -o run --set train.steps=6; done; rm -rf run; cp -r kept run
  run/weights.safetensors: a symbolic link; in a folder of results expected a regular file, or nothing of that name
  run/op_stats.csv: a symbolic link; in a folder of results expected a regular file, or nothing of that name
  run/steps.csv: a symbolic link; in a folder of results expected a regular file, or nothing of that name
  run/checkpoints: a symbolic link; inside a folder of results expected a folder, or nothing of that name
  $ for name in replay.json replay.csv claims.json replay.figure.json
  > do linked out/$name treasure replay run -o out --quiet; done
  out/replay.json: a symbolic link; in a folder of results expected a regular file, or nothing of that name
  out/replay.csv: a symbolic link; in a folder of results expected a regular file, or nothing of that name
  out/claims.json: a symbolic link; in a folder of results expected a regular file, or nothing of that name
  out/replay.figure.json: a symbolic link; in a folder of results expected a regular file, or nothing of that name

The folder that the user named may be a link; a sweep stays in its folder.

  $ mkdir real; ln -s real named; ask report run -o named && ls real | grep html
  report.html
  $ sed -i 's/fifo/small.toml/' sweep.toml
  $ for name in plan w-v-seed1; do rm -rf s; mkdir s; ln -s $PWD/elsewhere s/$name
  > refuses sweep -c sweep.toml -o s --quiet; ls elsewhere; done
  a symbolic link; inside a folder of results expected a folder, or nothing of that name
  a symbolic link; inside a folder of results expected a folder, or nothing of that name

Dumps go into what is no file, and replace it where it is one. Data alone go to the standard output; the
summary is on stderr.

  $ dumps() { rm -rf d; fp16lab train -c small.toml -o d --set train.steps=2 --dump-initial $1 > stdout \
  > 2> stderr; }
  $ dumps plain; wc -c < plain
  5120
  $ cat fifo > got & dumps fifo; wait; cmp got plain && [ -p fifo ]
  $ echo old > old; ln -s old link; dumps link; cmp old plain && [ -h link ]
  $ dumps /dev/stdout; cmp stdout plain; grep -o '"state":"finished"' stderr
  "state":"finished"
  $ ! mknod null c 1 3 2> /dev/null || { dumps null && [ -c null ]; }
  $ ln -s drawn link.dot; fp16lab model small.toml --draw link.dot > /dev/null
  > [ -h link.dot ] && head -1 drawn
  digraph "classifier" {
  $ for name in fifo link; do failed model small.toml --draw $name; done
  fp16lab: error: model: --draw: fifo: expected an ending such as .svg, .png or .dot
  fp16lab: error: model: --draw: link: expected an ending such as .svg, .png or .dot

What cannot be written is refused before the first step, and before there is a run folder; so is a file in
which the words of this program would be lost.

  $ mkdir folder; ln -s no/where nowhere
  $ for file in folder nowhere no/such /dev/fd/77; do refused train -c small.toml -o new --dump-initial $file
  > refused train -c small.toml -o new --dump-gradients 4 $file; done
  fp16lab: error: --dump-initial: cannot write folder: it is a folder; expected a file, a pipe or a character device
  fp16lab: error: --dump-gradients: cannot write folder: it is a folder; expected a file, a pipe or a character device
  fp16lab: error: --dump-initial: cannot write nowhere: No such file or directory
  fp16lab: error: --dump-gradients: cannot write nowhere: No such file or directory
  fp16lab: error: --dump-initial: no/such: no is not a folder
  fp16lab: error: --dump-gradients: no/such: no is not a folder
  fp16lab: error: --dump-initial: cannot write to /dev/fd/77: descriptor 77 is not open
  fp16lab: error: --dump-gradients: cannot write to /dev/fd/77: descriptor 77 is not open
  $ fp16lab train -c small.toml -o new --dump-initial file > file
  fp16lab: error: --dump-initial: cannot replace file: the standard output of this program goes there, and would be lost
  [2]
  $ ls new
  ls: cannot access 'new': No such file or directory
  [2]

The program reports the system's errors in its own words, for any request: names that are too long, below a
file, empty.

  $ : > file; long=$(head -c 5000 /dev/zero | tr '\0' x)
  $ for bad in $(echo $long | head -c 300) $long file/below ''
  > do for command in 'report "$bad"' 'hist "$bad"' 'hist "$bad*"' \
  > 'replay "$bad"' 'compare "$bad" "$bad"' 'model "$bad"' 'train -c "$bad" -o a' \
  > 'train -c small.toml -o "${bad:-file}"' \
  > 'train -c small.toml -o b --tensorboard "$bad"' 'train -c small.toml -o b --load-initial "$bad"' \
  > 'sweep -c "$bad" -o c' \
  > 'mma --row "$bad"'; do eval timeout 20 fp16lab $command > stdout 2> stderr < /dev/null; code=$?
  > [ $code -gt 0 ] && [ $code -lt 124 ] && ! grep 'filesystem error' stderr || echo "$command: $code"; done
  > done
