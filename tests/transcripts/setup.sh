# Every transcript begins with this file. cram has set the locale C, 80 columns and an empty folder of its own.
export PATH="${FP16LAB_BIN:-$TESTDIR/../../build/bin}:$PATH"
python=$(python3 -c 'import sys; print(sys.executable)')  # where python3 is a script that looks for it, that takes longer

# A call that is refused (exit code 2), or that fails (1), with nothing on stdout. What it says on stderr is shown.
refused() { ends_with 2 "$@"; }
failed() { ends_with 1 "$@"; }
ends_with() {
  expected=$1 && shift
  fp16lab "$@" >stdout 2>stderr
  code=$?
  cat stderr
  [ $code = "$expected" ] || echo "but exit code $code"
  [ ! -s stdout ] || { echo "but on stdout:" && cat stdout; }
}

# small.toml: a network of two layers, fc1 and fc2, on numbers drawn at random; 40 steps at level O1.
small_config() {
  cat >small.toml <<END
[model]
layer = [{ type = "mlp", widths = [16, 10] }]
[data]
name = "normal"
inputs = [64]
classes = 10
[train]
batch_size = 20
steps = 40
[amp]
level = "O1"
[observe]
histograms_every = 20
END
}

# small RUN [OPTIONS]: trains it. What train says is of no matter here.
small() {
  [ -e small.toml ] || small_config
  out=$1 && shift
  fp16lab train -c small.toml -o "$out" --quiet "$@" >/dev/null
}

# Parts of the JSON on stdin, which is x: a line for each Python expression.
of_json() {
  $python -c 'import json, sys
x = json.load(sys.stdin)
for part in sys.argv[1:]: print(json.dumps(eval(part)))' "$@"
}

arrays() { $python "$TESTDIR/arrays.py" "$@"; }

# within KB COMMAND...: runs it and tells if its greatest resident set is larger.
within() {
  $python -c 'import resource, subprocess, sys
subprocess.run(sys.argv[2:])
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
if peak > int(sys.argv[1]): print("it took", peak, "kB")' "$@"
}

# column NAME FILE: of a CSV file, top to bottom.
column() {
  awk -F , -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) wanted = i; next } { print $wanted }' "$2"
}
