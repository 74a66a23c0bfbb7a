`fp16lab mma --explain` shows how a dot product comes about, step by step. The lines here are worked out by
hand; what holds of every explanation is asked by tests/numerics/tensor_core/explained_dot_test.cpp.

  $ . "$TESTDIR/setup.sh"
  $ explain() { printf "$1" | fp16lab mma --explain --model $2; }

One sum, three generations. The terms: c = 4b000000 = 2^23; f000 * 6400 = -2^13 * 2^10 = -2^23; and b800,
b400, b000 = -1/2, -1/4, -1/8, times 1. The largest exponent is 23, so the least bit that is kept is 2^(23 -
F): 1 on Volta (F = 23), 1/2 on Ampere (24), 1/4 on Hopper (25). 2^23 cancels, and of -7/8 remain 0, -1/2 and
-3/4. An ulp of FP32 at 7/8, in [1/2, 1), is 2^-24, so the errors are 7/8, 3/8 and 1/8 of 2^24 ulps, all of
them from the alignment: 14680064, 6291456 and 2097152.

  $ cancelling='f000 b800 b400 b000\t6400 3c00 3c00 3c00\t4b000000\n'
  $ explain "$cancelling" volta
  f000 b800 b400 b000\t6400 3c00 3c00 3c00\t4b000000 (esc)
    volta: f16 * f16 -> f32, block of 4 products and c, F 23, E0 -131, fp32_toward_zero
    a[0]  f000      -8192  -8192    b[0]  6400  1024  1024
    a[1]  b800      -2^-1  -0.5     b[1]  3c00  1     1
    a[2]  b400      -2^-2  -0.25    b[2]  3c00  1     1
    a[3]  b000      -2^-3  -0.125   b[3]  3c00  1     1
    c     4b000000  2^23   8388608
    step 1: a fused block, max exponent 23, unit 2^0, from c = 4b000000
      term       exact  exponent  aligned, x 2^23                   kept   dropped
      c          2^23   23        + 01.00000000000000000000000      2^23   0
      a[0]*b[0]  -2^23  23        - 01.00000000000000000000000      -2^23  0
      a[1]*b[1]  -2^-1  -1        - 00.00000000000000000000000|1    0      -2^-1
      a[2]*b[2]  -2^-2  -2        - 00.00000000000000000000000|01   0      -2^-2
      a[3]*b[3]  -2^-3  -3        - 00.00000000000000000000000|001  0      -2^-3
      sum 0
      toward zero: 00000000 = 0, exact
    d          00000000 = 0
    exact sum  -7*2^-3 = -0.875
    nearest    bf600000 = -7*2^-3 = -0.875
    error      +1.46801e+07 ulp (an ulp is 2^-24), relative +1; from alignment +1.46801e+07 ulp, from rounding +0 ulp
  $ explain "$cancelling" ampere | grep 'step 1\|\[[13]\]\*\|  d '
    step 1: a fused block, max exponent 23, unit 2^-1, from c = 4b000000
      a[1]*b[1]  -2^-1  -1        - 00.000000000000000000000001     -2^-1  0
      a[3]*b[3]  -2^-3  -3        - 00.000000000000000000000000|01  0      -2^-3
    d          bf000000 = -2^-1 = -0.5
  $ explain "$cancelling" hopper | grep 'step 1\|\[2\]\*\|  d '
    step 1: a fused block, max exponent 23, unit 2^-2, from c = 4b000000
      a[2]*b[2]  -2^-2  -2        - 00.0000000000000000000000001    -2^-2  0
    d          bf400000 = -3*2^-2 = -0.75
  $ for model in volta ampere hopper; do explain "$cancelling" "$model --json" | of_json 'x["error_ulp"]'
  > done
  14680064.0
  6291456.0
  2097152.0

0800 * 8c00 = 2^-13 * -2^-12 = -2^-25 beside c = 1. Hopper keeps it: 1 - 2^-25 = 33554431 * 2^-25, 25 ones in
binary. The accumulator has 24, so truncation loses the last: 16777215 * 2^-24 = 3f7fffff, off by -2^-25. The
sum lies in [1/2, 1), where an ulp is 2^-24: the error is -1/2 ulp. The sum is a tie, and 1 is even. JSON has
the same numbers, and counts comments as lines.

  $ explain '0800\t8c00\t3f800000\n' hopper | sed -n '/ sum /,$p'
      sum 33554431*2^-25 = 0.9999999702
      toward zero: 3f7fffff = 16777215*2^-24 = 0.99999994, off by -2^-25
    d          3f7fffff = 16777215*2^-24 = 0.999999940395355224609375
    exact sum  33554431*2^-25 = 0.9999999701976776123046875
    nearest    3f800000 = 1
    error      -0.5 ulp (an ulp is 2^-24), relative -2.98023e-08; from alignment +0 ulp, from rounding -0.5 ulp
  $ explain '# a comment\n\n0800\t8c00\t3f800000\n' 'hopper --json' > 3.json
  $ of_json '[x["line"], x["row"]["fraction_bits"], x["a"], x["c"], x["d"]["bits"], x["exact"]["decimal"]]' \
  > '[x["nearest"]["bits"], *(x[k] for k in ("correctly_rounded", "ulp_exponent", "error_ulp")),
  > x["error_relative"] + 1 / 33554431]' \
  > '[x["steps"][0][k] for k in ("step", "max_exponent", "unit_exponent", "result", "rounding")]' \
  > 'x["steps"][0]["sum"]' 'x["steps"][0]["terms"][1]' '[len(x["steps"]), len(x["steps"][0]["terms"])]' \
  > < 3.json
  [3, 25, [{"bits": "0800", "value": "0.0001220703125"}], {"bits": "3f800000", "value": "1"}, "3f7fffff", "0.9999999701976776123046875"]
  ["3f800000", false, -24, -0.5, 0.0]
  ["fused_block", 0, -25, {"bits": "3f7fffff", "value": "0.999999940395355224609375"}, {"significand": "-1", "exponent": -25, "decimal": "-2.98023223876953125e-08"}]
  {"significand": "33554431", "exponent": -25, "decimal": "0.9999999701976776123046875"}
  {"term": "a[0]*b[0]", "exact": {"significand": "-1", "exponent": -25, "decimal": "-2.98023223876953125e-08"}, "exponent": -25, "aligned": "- 00.0000000000000000000000001", "kept": {"significand": "-1", "exponent": -25, "decimal": "-2.98023223876953125e-08"}, "dropped": {"significand": "0", "exponent": 0, "decimal": "0"}}
  [1, 2]

1 + 2^-11 + 2^-25 (3c00 * 3c00, 3c00 * 1000, 0400 * 1000) to FP16, whose ulp at 1 is 2^-10. Volta drops 2^-25
(F = 23), and the tie 1 + 2^-11 goes to the even 1: an error of -(2^-11 + 2^-25) = -(1/2 + 2^-15) ulp, of
which 2^-15 = 3.05176e-05 by alignment. Hopper keeps it (F = 25) and rounds up, as one correct rounding does.

  $ explain '3c00 3c00 0400\t3c00 1000 1000\t0\n' 'volta --acc f16' | grep 'sum\|even\|error'
    volta: f16 * f16 -> f16, block of 4 products and c, F 23, E0 -19, fp16_nearest_even
      sum 2049*2^-11 = 1.000488281
      to nearest even: 3c00 = 1, off by -2^-11
    exact sum  33570817*2^-25 = 1.0004883110523223876953125
    error      -0.500031 ulp (an ulp is 2^-10), relative -0.000488073; from alignment -3.05176e-05 ulp, from rounding -0.5 ulp
  $ explain '3c00 3c00 0400\t3c00 1000 1000\t0\n' 'hopper --acc f16' | grep '  d \|error'
    d          3c01 = 1025*2^-10 = 1.0009765625
    error      +0.499969 ulp (an ulp is 2^-10), relative +0.000488013; from alignment +0 ulp, from rounding +0.499969 ulp; correctly rounded

E4M3's 04 is subnormal: 4 * 2^-9 = 2^-7 with exponent -6. Two products are 2^-14 with exponent -12, the first
is 1. Ada keeps 13 bits below 1, so each 2^-14 is lost although their sum, 2^-13, has a bit. An ulp of FP32 at
1 is 2^-23: the error is -2^10 ulp.

  $ explain '38 04 04\t38 04 04\t0\n' 'ada --in e4m3' | grep 'a\[1\]\*\|zero\|error'
    ada: e4m3 * e4m3 -> f32, block of 16 products and c, F 13, E0 -132, fp32_toward_zero_14_bits
      a[1]*b[1]  2^-14  -12       + 00.0000000000000|1  0     2^-14
      toward zero, to 14 bits: 3f800000 = 1, exact
    error      -1024 ulp (an ulp is 2^-23), relative -0.000122055; from alignment -1024 ulp, from rounding +0 ulp

3f800001 = 1 + 2^-23 loses its last bit, which TF32 has not: of the exact sum 2 + 2^-22 remains 2. An ulp at 2
is 2^-22, so the error is -1 ulp, and neither alignment nor rounding made it.

  $ explain '3f800001\t40000000\t0\n' 'ampere --in tf32' | grep '  a\[0\]  \|exact sum\|error'
    a[0]  3f800001  1  1  and 2^-23, dropped  b[0]  40000000  2  2
    exact sum  8388609*2^-22 = 2.0000002384185791015625
    error      -1 ulp (an ulp is 2^-22), relative -1.19209e-07; from bits of operands -1 ulp, from alignment +0 ulp, from rounding +0 ulp
  $ explain '3f800001\t40000000\t0\n' 'ampere --in tf32 --json' |
  > of_json 'x["a"]' 'x["b"]' '[x["operand_error_ulp"], x["error_ulp"]]'
  [{"bits": "3f800001", "value": "1", "dropped": {"significand": "1", "exponent": -23, "decimal": "1.1920928955078125e-07"}}]
  [{"bits": "40000000", "value": "2"}]
  [-1.0, -1.0]
  $ explain '3c00\t3c00\t0\n' 'ampere --json' | of_json '[k for k in ("operand_error_ulp", "plan") if k in x]'
  []

Hopper's FP8 with FP16 accumulators: k mod 4 in {0, 1} first. 78 * 50 = 2^8 * 2^3 = 2048, where FP16 has an
ulp of 2. The second block adds 38 * 38 = 1: 2049 is a tie, and 2048 is even. Then c = 1: the same again. The
exact sum is 2050 = 6801; both roundings lost half an ulp. With k < 16 first, all four products share the
first block, and the second has none.

  $ explain '78 00 38 00\t50 00 38 00\t3c00\n' 'hopper --in e4m3 --acc f16' | sed -n '/step 2:/,$p'
    step 2: a fused block, max exponent 11, unit 2^-14, from step 1 = 6800
      term       exact  exponent  aligned, x 2^11                 kept  dropped
      step 1     2048   11        + 01.0000000000000000000000000  2048  0
      a[2]*b[2]  1      0         + 00.0000000000100000000000000  1     0
      a[3]*b[3]  0
      sum 2049
      to nearest even: 6800 = 2048, off by -1
    step 3: an addition
      term    exact
      step 2  2048
      c       1
      sum 2049
      to nearest even: 6800 = 2048, off by -1
    d          6800 = 2048
    exact sum  2050
    nearest    6801 = 2050
    error      -1 ulp (an ulp is 2^1), relative -0.00097561; from alignment +0 ulp, from rounding -1 ulp
  $ explain '78 00 38 00\t50 00 38 00\t3c00\n' 'hopper --in e4m3 --acc f16 --fp8-order halves --json' |
  > of_json '[[s["step"], [t["term"] for t in s["terms"]]] for s in x["steps"]]'
  [["fused_block", ["c", "a[0]*b[0]", "a[1]*b[1]", "a[2]*b[2]", "a[3]*b[3]"]], ["fused_block", ["c"]], ["addition", ["blocks", "c"]]]

Special values, zeros and no products are explained too. -0 terms: the hardware's zero is positive, IEEE 754's
negative.

  $ for line in '\t\t80000000' '7c00\t0000\t0' 'fc00\t3c00\t0' '8000\t3c00\t80000000'
  > do explain "$line" volta | sed -n '/^  d /,$p' | xargs; done
  d 80000000 = -0 exact sum -0 nearest 80000000 = -0 error none, the result is the exact sum
  d 7fffffff = nan exact sum nan nearest 7fffffff = nan error none
  d ff800000 = -inf exact sum -inf nearest ff800000 = -inf error none
  d 00000000 = 0 exact sum -0 nearest 80000000 = -0 error none, the result is the exact sum

c = 2^128 - 2^104 (the largest FP32) and 2^104 from BF16's 7380: truncation makes 2^128 infinite, as one
rounding does. With two blocks, +2^128 and -2^127, the first overflows; the exact sum would not.

  $ explain '7380\t3f80\t7f7fffff\n' 'ampere --in bf16' | grep ' sum 2\|zero:\|error'
      sum 2^128 = 3.402823669e+38
      toward zero: 7f800000 = inf
    error      none
  $ explain '5f80 0 0 0 ff00\t5f80 0 0 0 3f80\t0\n' 'ampere --in bf16 --block-size 4' |
  > grep 'exact sum\|error'
    exact sum  2^127 = 1.70141183460469231731687303715884105728e+38
    error      not finite

A plan has chains, roundings and sums. Volta's block takes four products, so each part of K = 8 is one. FP16
rounds 2057 to 2056, the tie's even side, and 1 + 2^-11 to 1.

  $ parts='6800 4880 0 0 3c00 1000 0 0\t3c00 3c00 3c00 3c00 3c00 3c00 3c00 3c00\t0\n'
  $ explain "$parts" 'volta --plan split-k --parts 2 --partials f16' |
  > grep 'plan\|chain\|step\|sum\|even\|  d '
    plan split-k: volta: 2 neighbouring parts of tiles of 4, each one chain, rounded to f16, added in order
    chain 1, of part 1: k = 0..3, from +0
    step 1: a fused block, max exponent 11, unit 2^-12, from +0
      sum 2057
    sum 1: chain 1, to f16
      chain 1  2057
      sum 2057
      to nearest even: 45008000 = 2056, off by -1
    chain 2, of part 2: k = 4..7, from +0
    step 2: a fused block, max exponent 0, unit 2^-23, from +0
      sum 2049*2^-11 = 1.000488281
    sum 2: chain 2, to f16
      chain 2  2049*2^-11
      sum 2049*2^-11 = 1.000488281
      to nearest even: 3f800000 = 1, off by -2^-11
    sum 3: sum 1 + sum 2
      sum 1  2056
      sum 2  1
      sum 2057
      to nearest even: 45009000 = 2057, exact
    d          45009000 = 2057
    exact sum  4214785*2^-11 = 2058.00048828125
  $ explain "$parts" 'volta --plan split-k --parts 2 --partials f16 --json' |
  > of_json 'x["plan"]["chains"][1]["elements"]' \
  > '[[s["step"], s.get("chain"), [t["term"] for t in s["terms"]]] for s in x["steps"]]'
  [4, 5, 6, 7]
  [["fused_block", 1, ["c", "a[0]*b[0]", "a[1]*b[1]", "a[2]*b[2]", "a[3]*b[3]"]], ["rounding", null, ["chain 1"]], ["fused_block", 2, ["c", "a[4]*b[4]", "a[5]*b[5]", "a[6]*b[6]", "a[7]*b[7]"]], ["rounding", null, ["chain 2"]], ["addition", null, ["sum 1", "sum 2"]]]

With four interleaved chains the first goes on with what is left, and a pair may have only one product.

  $ explain '3f80 3f80 3f80 3f80 3f80 3f80\t3f80 3f80 3f80 3f80 3f80 3f80\t0\n' \
  > 'avx512_bf16 --plan onednn --m 4 --n 4' | grep 'chain 1, of'
    chain 1, of part 1: k = 0, 4, 5, from +0
  $ explain '3f80\t3f80\t0\n' 'avx512_bf16 --plan onednn' | grep 'padding\|step 2'
      padding  0
    step 2: an fma, from step 1 = 00000000

With `--verify` it explains what differs, and comments pass through.

  $ one='3c00\t3c00\t3f800000'
  $ explain "# chip\n$one\t40000000\n$one\t40000001\n" 'hopper --verify' |
  > sed -n '1,2p; /^  d /p; /captured/p'
  fp16lab: mma: 1 of 2 lines differ from hopper with f16 and f32
  3c00\t3c00\t3f800000\t40000001 (esc)
    hopper: f16 * f16 -> f32, block of 16 products and c, F 25, E0 -133, fp32_toward_zero
    d          40000000 = 2
    captured   40000001, not d
  $ explain "$one\t40000001\n" 'hopper --verify --json --quiet' | of_json 'x["captured"]'
  fp16lab: mma: 1 of 1 lines differ from hopper with f16 and f32
  "40000001"
  $ explain "# chip\n$one\n" hopper | head -2
  # chip
  3c00\t3c00\t3f800000 (esc)
