`fp16lab hist FILE` counts where the values of a dump are in a format, and says first what is wrong.

  $ . "$TESTDIR/setup.sh"

Eight values: one zero, three that are lost at scale 1 (one of them the tie 2^-25), one subnormal, two normal,
one overflow. 2^5 brings 2^-30 to 2^-25, which is still lost, and the other two above it. Values that carry
2^5 already are judged by what is left of it.

  $ eight='0 2^-30 -2^-26 2^-25 2^-20 0.5 1 -70000'
  $ arrays g.npy "g=<f8 2,4 $eight"
  $ zones() { fp16lab hist "$@" --quiet --json | of_json '[[t["tensor"], t["total"], t["zero"],
  > [t[z][0] if t[z][0] == t[z][1] else t[z] for z in ("lost", "subnormal", "normal", "overflow")]]
  > for t in x["tensors"]]'; }
  $ zones g.npy; zones g.npy --scale 2^5; zones g.npy --scale 64
  [["g", 8, 1, [3, 1, 2, 1]]]
  [["g", 8, 1, [1, 3, 2, 1]]]
  [["g", 8, 1, [0, 3, 3, 1]]]
  $ fp16lab hist g.npy --recorded-scale 2^5 --json | of_json 'x["scale"]'
  32.0
  $ zones g.npy --recorded-scale 2^5; zones g.npy --recorded-scale 2^5 --scale 2^10
  [["g", 8, 1, [3, 1, 2, 1]]]
  [["g", 8, 1, [1, 3, 2, 1]]]
  $ fp16lab hist g.npy | grep .
  FP16 at 2^0 makes 14.3 % of the finite non-zero values Inf or NaN, most in g: 14.3 % of its own, the largest 1.07 times FP16's largest number.
  FP16 at 2^0 makes 42.9 % of the finite non-zero values zero, most in g: 42.9 % of its own. Losing them raises no tensor's rounding error by a tenth.
  Its values in FP16 at loss scale 2^0, percent of the finite non-zero values (error 1.00: what FP16's precision costs)
  tensor              values  Inf, NaN         magnitudes   overflow rounds to 0   subnormal    error  scales that fit
  g                        8         0     9.3e-10..7e+04       14.3        42.9        14.3        -  2^-31 .. 2^-1
  In FP16 the values fit from 2^-31 to 2^-1: nothing overflows, and rounding costs at most 1.1 times what FP16's precision costs by itself. Suggested: 2^-9: gradients may become 256 times as large before one overflows, and 2^22 times as small before rounding costs more.
  Next: fp16lab hist g.npy --scale '2^-9' (the same at the suggested scale)
  $ fp16lab hist g.npy --format f16,bf16 --all | grep -A 3 'by format\|^BF16 needs'
  All tensors at loss scale 2^0, by format: percent of the finite non-zero values, and of L1
  format  rounds to 0   subnormal      normal    overflow         lost L1  cosine >=  suggested scale
  FP16           42.9        14.3        28.6        14.3         < 0.001    unknown  2^-9
  BF16              0           0       100.0           0               0   0.999992  needs none
  --
  BF16 needs no loss scale: the values fit up to 2^111 (nothing overflows, and rounding costs at most 1.1 times what BF16's precision costs by itself).
  Next: fp16lab hist g.npy --format f16,bf16 --scale '2^-9' (the same at the suggested scale)

A format is taken in every spelling that is printed, and several in one command.

  $ fp16lab hist g.npy --format f16,bf16,e5m2 --json > plain
  $ for format in FP16,BF16,E5M2 fp16,Bf16,e5m2 'f16,bf16 --format e5m2'
  > do fp16lab hist g.npy --json --format $format | cmp - plain; done
  $ of_json '[[f["format"], f["merged"]["lost"], f["merged"]["overflow"]] for f in x["formats"]]' \
  > 'len(x["arrays"])' < plain
  [["f16", [3, 3], [1, 1]], ["bf16", [0, 0], [0, 0]], ["e5m2", [4, 4], [1, 1]]]
  1
  $ for format in FP61 FP32 f16,fp8; do refused hist g.npy --format $format; done
  fp16lab: error: --format FP61: known are f16, bf16, e4m3, e5m2, e3m2, e2m3, e2m1, e4m3fnuz, e5m2fnuz
  fp16lab: error: --format FP32: known are f16, bf16, e4m3, e5m2, e3m2, e2m3, e2m1, e4m3fnuz, e5m2fnuz
  fp16lab: error: --format fp8: known are f16, bf16, e4m3, e5m2, e3m2, e2m3, e2m1, e4m3fnuz, e5m2fnuz

All finite FP16 numbers, each judged by itself, those near 65504 among them: lost, subnormal and overflow, as
Python counts them.

  $ $python -c 'import struct
  > open("h", "wb").write(b"".join(struct.pack("<H", n) for n in range(65536) if n >> 10 & 31 != 31))'
  $ arrays h.npy 'h=<f2 63488 file h' && fp16lab hist h.npy --all | grep '^h '
  note: h: 0.00315 % of its values are zeros, which rounding to its own type, FP16, may have caused; no scale restores them
  h                    63488  0.0032            0         3.2        96.8           0
  h                          0               0         < 0.001               0   0.999999  2^-27 .. 2^0
  $ for scale in 1 3 2^-7 0.75; do fp16lab hist h.npy --quiet --scale $scale --json | of_json \
  > '[x["tensors"][0][z][0] for z in ("lost", "subnormal", "overflow")]'; done
  [0, 2046, 0]
  [0, 682, 3414]
  [128, 16254, 0]
  [0, 2730, 0]
  $ $python -c 'import bisect, struct
  > y = sorted(abs(v[0]) for v in struct.iter_unpack("<e", open("h", "rb").read()) if v[0])
  > for s in 1, 3, 2**-7, 0.75:
  >   lost, small = (bisect.bisect_right(y, z, key=lambda v: v * s) for z in (2**-25, 2**-14 * (1 - 2**-40)))
  >   print([lost, small - lost, len(y) - bisect.bisect_left(y, 65520, key=lambda v: v * s)])'
  [0, 2046, 0]
  [0, 682, 3414]
  [128, 16254, 0]
  [0, 2730, 0]

A header may name any number of tensors: memory follows the file, not 8 kB of counters a tensor, and what is
kept of a small tensor follows its values.

  $ $python -c 'import json, struct
  > for file, count, size in ("empty", 60000, 0), ("small", 40000, 4):
  >   rows = {f"t{i}": [size * i, size * i + size] for i in range(count)}
  >   rows["w"] = [size * count, size * count + 4]
  >   text = json.dumps({n: {"dtype": "F32", "shape": [(e - b) // 4], "data_offsets": [b, e]}
  >                      for n, (b, e) in rows.items()})
  >   data = struct.pack("<Q", len(text)) + text.encode() + b"\0\0\200?" * (rows["w"][1] // 4)
  >   open(file + ".safetensors", "wb").write(data)'
  $ within 200000 fp16lab hist empty.safetensors | head -1
  > within 250000 fp16lab hist small.safetensors | head -1
  Nothing to fix: every value is finite, and every tensor fits.
  Nothing to fix: every value is finite, and every tensor fits.

hist lists arrays of all files, and names what it leaves out: alphabetically within a pattern, every file
once.

  $ arrays a.npz "w=<f8 8F $eight" 'b=<f2 2 hex 003c 0100' 'n=<i8 1 hex 0000000000000000' t.safetensors \
  > 'x=F32 1 1'
  $ fp16lab hist a.npz --json | of_json 'x["arrays"]' 'x["skipped"]'
  note: a.npz: 'n' is skipped: <i8 (1,): integers
  [{"tensor": "w", "file": "a.npz", "format": "npz", "name": "w", "dtype": "<f8", "taken_as": null, "shape": [8], "fortran_order": true, "recorded_scale": 1.0, "below_fp32": 0, "above_fp32": 0, "step": null}, {"tensor": "b", "file": "a.npz", "format": "npz", "name": "b", "dtype": "<f2", "taken_as": null, "shape": [2], "fortran_order": false, "recorded_scale": 1.0, "below_fp32": 0, "above_fp32": 0, "step": null}]
  [{"file": "a.npz", "name": "n", "reason": "<i8 (1,): integers"}]
  $ zones '*.np?' t.safetensors g.npy | sed 's/\], \[/\n/g'
  [["a.npz:w", 8, 1, [3, 1, 2, 1]
  "a.npz:b", 2, 0, [0, 1, 1, 0]
  "g.npy", 8, 1, [3, 1, 2, 1]
  "h.npy", 63488, 2, [0, 2046, 61440, 0]
  "t.safetensors:x", 1, 0, [0, 0, 1, 0]]]
  $ arrays mixed.safetensors 'c=C64 1 hex 0101010101010101' 'scales=F8_E8M0 2 hex 0101' \
  > 'packed=F4 4 hex 0101' \
  > 'amd=F8_E4M3FNUZ 2 hex 0101' 'new=F99 3 hex 010101010101' 'x=F32 1 1'
  $ fp16lab hist mixed.safetensors --json | of_json '[t["tensor"] for t in x["tensors"]]' 'x["skipped"][1]'
  note: mixed.safetensors: 'c' is skipped: C64 (1,): its type is not counted
  note: mixed.safetensors: 'new' is skipped: F99 (3,): its type is not counted
  note: packed: 50 % of its values are zeros, which rounding to its own type, E2M1, may have caused; no scale restores them
  ["scales", "packed", "amd", "x"]
  {"file": "mixed.safetensors", "name": "new", "reason": "F99 (3,): its type is not counted"}
  $ fp16lab hist mixed.safetensors --json --include x | of_json 'x["skipped"]'
  []

FP64 may leave FP32's range, in which it is counted; a dump's own type may have made its zeros.

  $ arrays far.npy 'x=<f8 3 2^-200 2^200 1'; zones far.npy; fp16lab hist far.npy > out
  > fp16lab hist far.npy --quiet | cmp - out
  [["far", 3, 0, [1, 0, 1, 1]]]
  note: 1 FP64 values are below FP32's smallest number
  note: 1 finite FP64 values are beyond FP32's largest number
  $ arrays half.npy 'x=<f2 4 1 0 0 2^-24'; fp16lab hist half.npy > out
  > fp16lab hist half.npy --quiet | cmp - out
  note: half: 50 % of its values are zeros, which rounding to its own type, FP16, may have caused; no scale restores them

Bytes and words are counted as what the user says that they are: 1, 2^-20, 2^-30 and 65536 in the bits of
BF16, in either order of bytes; 1, 2^-16 and 57344 in those of E5M2. What has a type keeps it.

  $ arrays u2.npy 'x=<u2 4 hex 803f 8035 8030 8047' big.npy 'x=>u2 4 hex 3f80 3580 3080 4780'
  $ arrays V2.npy 'x=|V2 4 hex 803f 8035 8030 8047' words.safetensors 'w=U16 4 hex 803f 8035 8030 8047'
  $ arrays words.npz 'i2=<i2 4 hex 803f 8035 8030 8047' 'half=<f2 1 1'
  $ for file in u2.npy big.npy V2.npy words.npz words.safetensors; do zones $file --as bf16; done
  [["u2", 4, 0, [1, 1, 1, 1]]]
  [["big", 4, 0, [1, 1, 1, 1]]]
  [["V2", 4, 0, [1, 1, 1, 1]]]
  [["i2", 4, 0, [1, 1, 1, 1]], ["half", 1, 0, [0, 0, 1, 0]]]
  [["w", 4, 0, [1, 1, 1, 1]]]
  $ fp16lab hist words.npz --as BF16 --json | of_json '[a["taken_as"] for a in x["arrays"]]'
  ["bf16", null]
  $ arrays f1.npy 'x=<f1 3 hex 3c 01 7b' u1.npy 'x=|u1 3 hex 3c 01 7b'
  $ for file in f1.npy u1.npy; do zones $file --as e5m2 --format e5m2; done
  > zones u1.npy u2.npy --as e4m3,bf16
  [["f1", 3, 0, [0, 1, 2, 0]]]
  [["u1", 3, 0, [0, 1, 2, 0]]]
  [["u1.npy", 3, 0, [0, 0, 3, 0]], ["u2.npy", 4, 0, [1, 1, 1, 1]]]
  $ failed hist u2.npy --as e4m3; failed hist f1.npy
  fp16lab: error: u2.npy: nothing to count: 'u2' is <u2 (4,): integers (are they BF16 or FP16? --as bf16 or --as f16 counts them)
  fp16lab: error: f1.npy: nothing to count: 'f1' is <f1 (3,): only floating-point numbers of 2, 4 and 8 bytes are counted (are they FP8? --as e4m3 or --as e5m2 counts them)
  $ refused hist g.npy --as bf16; refused hist u1.npy --as e4m3,e5m2; refused hist u1.npy --as f32
  fp16lab: error: --as bf16: there is no array of 2-byte elements without a floating-point type
  fp16lab: error: --as e4m3,e5m2: both have 1 byte; give one of them, and --include the arrays of that type
  fp16lab: error: --as f32: known are f16, bf16, e4m3, e5m2, e3m2, e2m3, e2m1, e4m3fnuz, e5m2fnuz, e8m0, ue4m3

Tensors are chosen by name: a name, what begins with it and a point, or a pattern.

  $ arrays s.safetensors 'fc1.weight=F32 1 1' 'fc1.bias=F32 1 1' 'fc2.weight=F32 1 1' 'fc10.weight=F32 1 1'
  $ names() { fp16lab hist "$@" --json | of_json '[t["tensor"] for t in x["tensors"]]'; }
  $ names s.safetensors --include fc1
  ["fc1.weight", "fc1.bias"]
  $ names s.safetensors --exclude '*.bias' --exclude fc10
  ["fc1.weight", "fc2.weight"]
  $ names s.safetensors --include '*.weight' --include fc1.bias --exclude 'fc?'
  ["fc10.weight"]
  $ for options in '--include fc3' '--exclude *.weigth' '--exclude *'; do (set -f
  > refused hist s.safetensors $options); done
  fp16lab: error: --include fc3: no tensor has such a name; there are fc1.bias, fc1.weight, fc10.weight, fc2.weight; did you mean 'fc1'?
  fp16lab: error: --exclude *.weigth: no tensor has such a name; there are fc1.bias, fc1.weight, fc10.weight, fc2.weight
  fp16lab: error: nothing is left to count after --include and --exclude

In a dump of this program hist counts gradients only. An older one says it by its own keys, and by names,
and gradients that were still scaled carry their scale; the same names in anybody's file are gradients.

  $ small run --dump-gradients 2 step.safetensors
  $ names step.safetensors
  note: step.safetensors: 'batch.0.targets' is skipped: I32 (20,): integers
  note: 5 tensors are left out: according to the dump they are not gradients (--include counts them)
  ["fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight"]
  $ names step.safetensors --quiet --include 'parameter.*'
  ["parameter.fc1.bias", "parameter.fc1.weight", "parameter.fc2.bias", "parameter.fc2.weight"]
  $ arrays any.safetensors 'w=F32 1 1' 'parameter.w=F32 1 0.5' 'batch.0.inputs=F32 1 0.5'
  $ $python -c 'import json, struct
  > data = open("any.safetensors", "rb").read()
  > keys = {"step": "1", "loss": "2", "loss_scale": "1024", "found_inf": "0", "scaled": "1"}
  > text = json.dumps({"__metadata__": keys} | json.loads(data[8:-12])).encode()
  > open("old.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data[-12:])'
  $ names old.safetensors --quiet; names any.safetensors
  ["w"]
  ["w", "parameter.w", "batch.0.inputs"]
  $ fp16lab hist old.safetensors --quiet --json | of_json 'x["recorded_scale"]' 'len(x["skipped"])'
  1024.0
  2
  $ fp16lab hist old.safetensors --quiet --json --recorded-scale 1 | of_json 'x["recorded_scale"]'
  1.0

Sums may be taken value by value, at `--scale`, of the values as they are in the file.

  $ arrays e.npy 'x=<f8 7 0 2^-25 -1.5*2^-26 2^-20 -0.75 1 65520'
  $ fp16lab hist e.npy --exact-mass --json > exact
  $ of_json '[x["exact"][0]["zero"]] + [x["exact"][0][k]["count"] for k in ("lost", "overflow", "total")]' \
  > 'x["exact"][0]["lost"]["l1"] == 2**-25 + 1.5 * 2**-26' \
  > 'x["exact"][0]["lost"]["l2_squared"] == 2**-50 + 2.25 * 2**-52' \
  > 'x["exact"][0]["subnormal"]["l1"] == 2**-20' \
  > 'x["exact"][0]["normal"]["l2_squared"]' \
  > 'x["tensors"][0]["l1"]["lost"] == 2 * [x["exact"][0]["lost"]["l1_share"]]' < exact
  [1, 2, 1, 6]
  true
  true
  true
  1.5625
  true
  $ fp16lab hist e.npy --exact-mass --json --recorded-scale 2^10 --scale 2^11 |
  > of_json 'x["exact"][0]["lost"]["count"]' \
  > 'x["exact"][0]["subnormal"]["l1"] == 2**-25 + 1.5 * 2**-26 + 2**-20'
  0
  true
  $ fp16lab hist e.npy --exact-mass | grep Exactly
  Exactly, value by value: what is lost in percent of the values, of L1 and of the sum of squares, what overflows in
  $ refused hist run --exact-mass
  fp16lab: error: --exact-mass is for dumps: run folders hold counts, not values

A figure has its data beside it: the bin of 2^-30, (2^-31, 2^-30], has one of w's seven values; the scale
moves it by 2^5, where it is lost.

  $ fp16lab hist a.npz --scale 2^5 -o figures > out 2>&1; ls figures; grep -c '<svg' figures/hist-a-npz.svg
  draw.js
  hist-a-npz.figure.json
  hist-a-npz.png
  hist-a-npz.svg
  1
  $ of_json 'x["title"]' '[p["title"] for p in x["panels"]]' \
  > '[x["panels"][1][k] for k in ("ratio", "zones")]' \
  > 'x["panels"][1]["histogram"][3], x["panels"][1]["histogram"][4][0]' < figures/hist-a-npz.figure.json
  "Gradient magnitudes in FP16, a.npz, at loss scale 2\u2075"
  ["all 2 tensors", "w", "b"]
  [32.0, {"finite": 7, "lost": [1, 1], "subnormal": [3, 3], "normal": [2, 2], "overflow": [1, 1]}]
  [-31, 1]
  $ fp16lab hist g.npy --format f16,bf16 -o both > out 2>&1; ls both | grep svg
  hist-g-npy-bf16.svg
  hist-g-npy-f16.svg
  $ grep -o 'Gradient magnitudes in BF16' both/hist-g-npy-bf16.figure.json
  Gradient magnitudes in BF16

For PyTorch's own files hist prints a command that converts them, for people to paste. Names cannot write to
the terminal.

  $ $python -c 'import zipfile
  > for name in "m.pt", "$(touch x)\x27\n.pt":
  >   with zipfile.ZipFile(name, "w") as z: z.writestr("m/data.pkl", b"\x80\2]q.")'
  $ printf '\200\002\212\012l\374\234F\371 j\250P\031.\200\002M\351\003' > legacy.bin
  $ refused hist m.pt; refused hist legacy.bin | cut -c 1-60
  fp16lab: error: m.pt: a PyTorch file, which holds Python objects; convert it with: python3 -c 'import sys, torch, safetensors.torch as s; s.save_file({k: v.clone().contiguous() for k, v in torch.load(sys.argv[1], map_location="cpu", weights_only=True).items() if torch.is_tensor(v)}, sys.argv[2])' m.pt m.safetensors
  fp16lab: error: legacy.bin: a PyTorch file, which holds Pyth
  $ refused hist "$(printf '$(touch x)\047\n.pt')" | grep -o "[$]'.*"
  $'$(touch x)\'\x0a.pt' $'$(touch x)\'\x0a.safetensors'
  $ arrays evil.npz "$(printf '\033[31m\n=<f2 1 1')"; fp16lab hist evil.npz | grep -a x0a
  \x1b[31m\x0a              1         0               1..1          0           0           0     1.00  2^-24 .. 2^15

A run and a dump in one call follow each other.

  $ fp16lab hist run g.npy --quiet | grep -n '^fc1.weight\|^g ' | cut -c 1-24
  6:fc1.weight            
  21:g                    

Mistakes are one line.

  $ for options in absent.npy '*.nothing' 'dumps/*.npz' 'd*/*.npz' . 'g.npy --step 3' 'g.npy --scale -1' \
  > 'g.npy --recorded-scale x' 'run --separate' 'run --include fc9'; do (set -f; refused hist $options); done
  > refused hist
  fp16lab: error: absent.npy: no such file or run folder
  fp16lab: error: *.nothing: no file matches
  fp16lab: error: dumps/*.npz: folder dumps does not exist
  fp16lab: error: d*/*.npz: no file matches
  fp16lab: error: .: not a run folder, since it has no manifest.json; for the dumps in it, give './*.npz'
  fp16lab: error: --step 3: only run folders have steps
  fp16lab: error: --scale -1: expected a finite number above 0, such as 2^15
  fp16lab: error: --recorded-scale: 'x' is not a number: a digit is missing
  fp16lab: error: --separate is for dumps: run folders are always reported one by one
  fp16lab: error: --include fc9: no tensor has such a name; there are fc1.bias, fc1.weight, fc2.bias, fc2.input, fc2.weight, loss.prediction; did you mean 'fc1'?
  fp16lab: error: FILE is required; see fp16lab hist --help
  $ arrays i.npy 'i=<i8 1 hex 0000000000000000' empty.npz cut.npy "x=<f8 8 $eight"; printf x > broken.npy
  $ sed -i 's/(8,)/(9,)/' cut.npy
  $ for file in i.npy empty.npz 'g.npy cut.npy' broken.npy; do failed hist $file; done
  fp16lab: error: i.npy: nothing to count: 'i' is <i8 (1,): integers
  fp16lab: error: empty.npz: nothing to count: it holds no array
  fp16lab: error: cut.npy: byte 192: the data end here, after 64 of the 72 bytes of <f8 (9,)
  fp16lab: error: broken.npy: byte 1: the data end in the magic string of a .npy header

What formats with a scale for each block keep of a dump. In MXFP4 the first row has scale 1: 1/4 is a tie to zero, and
7.5 becomes 6, the largest code. Rows are filled with zeros, and the order of the file does not matter.

  $ arrays blocks.npz 'w=<f4 2,4 6 0.25 0.26 7.5 1 1 1 1' 'f=<f4 2,4F 6 1 0.25 1 0.26 1 7.5 1' 'b=<f4 2 1 nan'
  $ fp16lab hist blocks.npz --blocks mxfp4,nvfp4:torchao --exclude b
  mxfp4: E2M1 codes, a scale in E8M0 for each block of 1 x 32, rule floor
  tensor      values   made 0 %  saturated %  of its blocks %  headroom  error %
  w                8       12.5         12.5               50      0.13     15.7
  f                8       12.5         12.5               50      0.13     15.7
  
  nvfp4: E2M1 codes, a scale in UE4M3 for each block of 1 x 16, rule torchao
  tensor      values   made 0 %  saturated %  of its blocks %  headroom  error %
  w                8         25            0                0      0.00     10.8
  f                8         25            0                0      0.00     10.8
  $ fp16lab hist blocks.npz --blocks mxfp8:rceil --include b
  mxfp8: E4M3 codes, a scale in E8M0 for each block of 1 x 32, rule rceil
  tensor      values   made 0 %  saturated %  of its blocks %  headroom  error %
  b                2          0            0                0         -        -
  2 values of blocks with Inf or NaN are left out of the errors
  $ fp16lab hist blocks.npz --blocks mxfp4 --include w --json | $python -c '
  > import json, sys
  > print(json.load(sys.stdin)[0]["tensors"][0])'
  {'tensor': 'w', 'values': 8, 'made_zero': 1, 'saturated': 1, 'blocks': 2, 'saturating_blocks': 1, 'not_finite': 0, 'mean_headroom': 0.1315172016620636, 'relative_error': 0.15681573909539406}
  $ refused hist blocks.npz --blocks mxfp4:te
  fp16lab: error: --blocks mxfp4:te: quantizer 'mxfp4' has scales of e8m0, which rule 'te' does not make; floor, ceil, even, rceil are possible
  $ refused hist blocks.npz --blocks mxfp44
  fp16lab: error: --blocks mxfp44: unknown quantizer 'mxfp44': known are mxfp8, mxfp8-e5m2, mxfp6-e3m2, mxfp6-e2m3, mxfp4, nvfp4, nvfp4-2d, fp8-1x128, fp8-128x128, fp8-row, fp8-tensor, fp8-tensor-e5m2; did you mean 'mxfp4'?
  $ refused hist blocks.npz --blocks mxfp4 --format bf16
  fp16lab: error: --blocks has tables of its own: it goes without --format, --scale, --exact-mass and -o
