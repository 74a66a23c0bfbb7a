`fp16lab inspect` shows one value in the formats. Values of the literature are here as they are typed.

  $ . "$TESTDIR/setup.sh"

Every format takes one line, whose digits add up with its error: 65536 - 65519.99 = 16.01. The format that is
asked for also shows its fields, its formula and its neighbours. E5M2's and BF16's neighbours of 0.00006666666 by
hand are 2^-14 and (1 + 12/128) 2^-14.

  $ fp16lab inspect 0.00006666666
  0.00006666666 = 6.666666e-05
  
    FP16 0x045e = 6.663799286e-05                           error -2.866714e-08 = -0.481 ulp  [inexact]
    BF16 0x388c = 6.675720215e-05                           error +9.054215e-08 = +0.1899 ulp  [inexact]
    TF32 0x1c45e = 6.663799286e-05                          error -2.866714e-08 = -0.481 ulp  [inexact]
    FP32 0x388bcf64 = 6.66666601318866e-05                  error +1.318866e-13 = +0.01813 ulp  [inexact]
    FP64 0x3f1179ec7f6b8246 = 6.6666659999999993693395e-05  error -6.306605e-21 = -0.4653 ulp  [inexact]
    E4M3 0x00 = 0                                           error -6.666666e-05 = -0.03413 ulp  [underflow inexact]
    E5M2 0x04 = 6.1035156e-05                               error -5.631504e-06 = -0.3691 ulp  [inexact]
    E2M1 0x0 = 0                                            error -6.666666e-05 = -0.0001333 ulp  [underflow inexact]
  $ fp16lab inspect 65519.99 --format BF16 | grep 'BF16\|next'
    BF16 0x4780 = 65536  error +16.01 = +0.03127 ulp  [inexact]
      next below    0x477f = 65280
      next above    0x4781 = 66048
  $ fp16lab inspect 0.00006666666 --format FP16 --json |
  > of_json 'x[0]["formats"][0]["rounding"]["nearest_even"]'
  {"bits": "0x045e", "sign": 0, "exponent": "00001", "fraction": "0001011110", "exponent_field": 1, "fraction_field": 94, "class": "normal", "formula": "(-1)^0 2^(1-15) (1+94/1024)", "value": "6.663799285888671875e-05", "short": "6.664e-05", "error": "-2.866714111328125e-08", "error_ulp": -0.48095481856, "flags": ["inexact"]}

`--long` says all that is known: every rounding, and both choices of stochastic rounding. 1 + 2^-12 is a
quarter of an ulp above 1.

  $ fp16lab inspect 0x1.001p0 --format FP16 --long | tail -n +6
      fields        0 01111 0000000000  normal
      value         (-1)^0 2^(15-15) (1+0/1024) = 1
      ulp           2^-10 = 0.0009765625
      next below    0x3bff = 0.9995117188
      next above    0x3c01 = 1.0009765625
      nearest_even  0x3c00 = 1             error -0.0002441406 = -0.25 ulp  [inexact]
      toward_zero   0x3c00 = 1             error -0.0002441406 = -0.25 ulp  [inexact]
      upward        0x3c01 = 1.0009765625  error +0.0007324219 = +0.75 ulp  [inexact]
      downward      0x3c00 = 1             error -0.0002441406 = -0.25 ulp  [inexact]
      nearest_away  0x3c00 = 1             error -0.0002441406 = -0.25 ulp  [inexact]
      stochastic    up in magnitude with probability 0.25 to 0x3c01 = 1.0009765625, else 0x3c00 = 1
  $ fp16lab inspect 0.1 --rounding upward --rounding=stochastic --format FP16 --long | tail -2
      upward        0x2e67 = 0.10003662109  error +3.662109e-05 = +0.6 ulp  [inexact]
      stochastic    up in magnitude with probability 0.4 to 0x2e67 = 0.10003662109, else 0x2e66 = 0.09997558594
  $ fp16lab inspect 0.00006666666 -2 f16:3c00 --long | wc -l
  596

Bits of IEEE 754-2019, table 3.5, and well-known codes; 57344 is E5M2's largest finite number, 448 E4M3's. A
value above 464 is NaN there. FP64's ties are judged by digits that no FP64 holds: half of its smallest number
goes to 0, a little more does not. No NaN but one is stored.

  $ bits() { f=$1; shift; for v; do fp16lab inspect "$v" --format $f | sed -n 's/^  [^ ]* \(0x[^ ]*\).*/\1/p'
  > done | xargs; }
  $ bits FP16 1 -2 65504 2^-24 2^-14 -0 f16:0x7e00 -1.5 2.98023223876953125000000000000000000000001e-08
  0x3c00 0xc000 0x7bff 0x0001 0x0400 0x8000 0x7fff 0xbe00 0x0001
  $ bits FP32 1 0.1 3.14159265358979 -inf nan
  0x3f800000 0x3dcccccd 0x40490fdb 0xff800000 0x7fffffff
  $ bits BF16 1 f16:0xfc00; bits E5M2 1 57344; bits E4M3 448 464 464.001 465
  0x3f80 0xff80
  0x3c 0x7b
  0x7e 0x7e 0x7f 0x7f
  $ bits FP64 0.1 4.9406564584124654e-324 2.4703282292062327e-324 2.4703282292062328e-324
  0x3fb999999999999a 0x0000000000000001 0x0000000000000000 0x0000000000000001

Bits of every format, one of the user's own too: EXPONENT_BITS,PRECISION. All of these are 1.5. 6,10 has bias
31, the largest number (2 - 2^-9) 2^31 and the smallest 2^-39. 4,4 with a top binade of numbers is E4M3;
without, 240 is the largest number. A signaling NaN shows its payload.

  $ bits BF16 f16:0x3e00 bf16:3fc0 tf32:0x1fe00 f32:3fc00000 f64:3ff8000000000000 e4m3:3c e5m2:0x3e \
  > 6,10:0x3f00
  0x3fc0 0x3fc0 0x3fc0 0x3fc0 0x3fc0 0x3fc0 0x3fc0 0x3fc0
  $ bits 6,10 4290772992 2^-39; bits 4,4,numbers 500 -17; bits E4M3 500 -17; bits 4,4 240 500 -17
  0x7dff 0x0001
  0x7f 0xd8
  0x7f 0xd8
  0x77 0x78 0xd8
  $ fp16lab inspect f16:0x7d01 --format FP32 | head -3
  f16:0x7d01 = signaling NaN, payload 0x101
  
    FP32 0x7fffffff = nan  [invalid]

Rounding modes differ where they must: 65520 is the tie between 65504 and the would-be 65536, 2^-25 the one
that loses small gradients.

  $ modes() { fp16lab inspect $1 --format $2 --long | sed -n 's/^    \([a-z_]*\)  *\(0x[^ ]*\).*/\1 \2/p' |
  > xargs; }
  $ modes 65520 FP16; modes 65519.99 FP16; modes 2^-25 FP16; modes -2^-25 FP16; modes -1e9 E4M3
  nearest_even 0x7c00 toward_zero 0x7bff upward 0x7c00 downward 0x7bff nearest_away 0x7c00
  nearest_even 0x7bff toward_zero 0x7bff upward 0x7c00 downward 0x7bff nearest_away 0x7bff
  nearest_even 0x0000 toward_zero 0x0000 upward 0x0001 downward 0x0000 nearest_away 0x0001
  nearest_even 0x8000 toward_zero 0x8000 upward 0x8000 downward 0x8001 nearest_away 0x8001
  nearest_even 0xff toward_zero 0xfe upward 0xfe downward 0xff nearest_away 0xff
  $ for value in 65520 2^-25 1; do fp16lab inspect $value --format FP16 --long |
  > sed -n '3p; /nearest_away/p; $p'; done
    FP16 0x7c00 = inf  tie, to even  [overflow inexact]
      nearest_away  0x7c00 = inf    tie, away from zero  [overflow inexact]
      stochastic    up in magnitude with probability 0.5 to 0x7c00 = inf, else 0x7bff = 65504
    FP16 0x0000 = 0  error -2.980232e-08 = -0.5 ulp  tie, to even  [underflow inexact]
      nearest_away  0x0001 = 5.960464e-08  error +2.980232e-08 = +0.5 ulp  tie, away from zero  [underflow inexact]
      stochastic    up in magnitude with probability 0.5 to 0x0001 = 5.960464e-08, else 0x0000 = 0
    FP16 0x3c00 = 1  exact
      nearest_away  0x3c00 = 1  exact
      stochastic    always 0x3c00 = 1

Neighbours never print alike, and only ties are called ties: the third value is 2^-42 ulp above the tie 1 +
2^-11.

  $ fp16lab inspect f32:0x4b800001 --format FP32 | grep ' 0x'
    FP32 0x4b800001 = 16777218  exact
      next below    0x4b800000 = 16777216
      next above    0x4b800002 = 16777220
  $ fp16lab inspect 0.1 --format FP64 | grep next
      next below    0x3fb9999999999999 = 0.09999999999999999167333
      next above    0x3fb999999999999b = 0.1000000000000000194289
  $ fp16lab inspect f64:0x3ff0020000000001 --format FP16 --long | sed -n '3p; $p'
    FP16 0x3c01 = 1.0009765625  error +0.0004882812 = +0.4999999999998 ulp  [inexact]
      stochastic    up in magnitude with probability 0.5 (not a tie, but nearer to one than 2^-32) to 0x3c01 = 1.0009765625, else 0x3c00 = 1
  $ fp16lab inspect 1025.49995 --format FP16 | sed -n 3p
    FP16 0x6401 = 1025  error -0.49995 = -0.49995 ulp  [inexact]
  $ fp16lab inspect 0 --format FP16 | grep next; fp16lab inspect 65504 --format FP16 | grep 'ulp\|above'
      next below    0x8001 = -5.960464e-08
      next above    0x0001 = 5.960464e-08
      ulp           2^5 = 32
      next above    0x7c00 = inf

The formula is the value; infinity has none.

  $ formula() { fp16lab inspect $1 --format $2 | sed -n 's/.* value *//p'; }
  $ formula -65504 FP16; formula 2^-24 FP16; formula -0 FP16; formula inf FP16; formula 448 E4M3
  > formula 1 FP64
  (-1)^1 2^(30-15) (1+1023/1024) = -65504
  (-1)^0 2^(-14) (1/1024) = 5.9604644775390625e-08
  (-1)^1 2^(-14) (0/1024) = -0
  inf
  (-1)^0 2^(15-7) (1+6/8) = 448
  (-1)^0 2^(1023-1023) (1+0/4503599627370496) = 1

Numbers with a sign are values in any place, in their order; a mistyped one is an unknown option.

  $ fp16lab inspect --format FP16 -- -inf > infinite
  $ fp16lab inspect -inf --format FP16 | cmp - infinite
  $ fp16lab inspect --format=FP16 -inf | cmp - infinite
  $ fp16lab inspect -inf --threads 1 --quiet --format FP16 | cmp - infinite
  $ bits FP16 -.5 -0x10 -0x1.8p3 -2^3 -1e-3 -nan -infinity
  0xb800 0xcc00 0xca00 0xc800 0x9419 0x7fff 0xfc00
  $ fp16lab inspect 1 -2 3 -inf --format FP16 | grep FP16
    FP16 0x3c00 = 1  exact
    FP16 0xc000 = -2  exact
    FP16 0x4200 = 3  exact
    FP16 0xfc00 = -inf
  $ refused inspect -imf --format FP16
  fp16lab: error: inspect: unknown option '-imf'

The edges of rounding are those of the question.

  $ fp16lab inspect --edges | tee edges | grep '2049 lies\|claims'
    HOLDS        2049 lies half way from 2048 to 2050 and becomes 2048: 0x6800
  134 claims: 134 hold
  $ exp_rounding_edges | tail -n "$(wc -l < edges)" | cmp - edges

What is no format, no rounding and no value is refused.

  $ refused inspect
  fp16lab: error: inspect: expected a VALUE, such as 0.1 or f16:0x045e
  $ for format in FP15 1,3 5,11,nothing; do refused inspect 1 --format $format; done
  fp16lab: error: unknown format 'FP15': expected one of FP16, BF16, TF32, FP32, FP64, E4M3, E5M2, E3M2, E2M3, E2M1, E4M3FNUZ, E5M2FNUZ, E8M0, UE4M3, or EXPONENT_BITS,PRECISION; did you mean 'FP16'?
  fp16lab: error: '1,3': format: 1 exponent bits; 2 to 15 are possible
  fp16lab: error: '5,11,nothing': expected EXPONENT_BITS,PRECISION, such as 6,10, and perhaps ,ENCODING: ieee, numbers, finite, fnuz, scale, such as 4,4,numbers
  $ refused inspect 1 --rounding upwards
  fp16lab: error: unknown rounding 'upwards': expected one of nearest_even, toward_zero, upward, downward, nearest_away, stochastic; did you mean 'upward'?
  $ for value in 1.5x f16:0x12345 f17:0x1 f16: f16:0xg hello e4m3:0x100 tf32:0x80000 f64:0x10000000000000000 \
  > 99,1:0
  > do refused inspect $value; done
  fp16lab: error: '1.5x' is not a number: 'x' is left over
  fp16lab: error: 'f16:0x12345': FP16 has 16 bits
  fp16lab: error: 'f17:0x1': expected one of the prefixes f16:, bf16:, tf32:, f32:, f64:, e4m3:, e5m2:, e3m2:, e2m3:, e2m1:, e4m3fnuz:, e5m2fnuz:, e8m0:, ue4m3:, or EXPONENT_BITS,PRECISION:
  fp16lab: error: 'f16:': expected hexadecimal bits, such as f16:0x3c
  fp16lab: error: 'f16:0xg': expected hexadecimal bits, such as f16:0x3c
  fp16lab: error: 'hello' is not a number: a digit is missing
  fp16lab: error: 'e4m3:0x100': E4M3 has 8 bits
  fp16lab: error: 'tf32:0x80000': TF32 has 19 bits
  fp16lab: error: 'f64:0x10000000000000000': FP64 has 64 bits
  fp16lab: error: '99,1:0': format: 99 exponent bits; 2 to 15 are possible
