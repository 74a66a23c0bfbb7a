`fp16lab softfloat FUNCTION` answers the lines of TestFloat: operands in hexadecimal, then the result and the
flags.

  $ . "$TESTDIR/setup.sh"
  $ answer() { printf '%s\n' "$2" | fp16lab softfloat $1; }

Every kind of function. Flags: 01 inexact, 02 underflow, 04 overflow, 08 division by zero, 10 invalid. 1 +
2^-11 is a tie; 2^-25 is lost; the remainder of 5 by 2 is 1; 2.5 goes to 2; 65520 overflows; what is above
2^-25 is kept; E4M3 has no infinity.

  $ answer f16_add '3C00 1000'; answer f16_sub '3C00 3C00'; answer f16_mul '0001 3800'
  > answer f16_mulAdd '3C01 3C01 BC02'
  3C00 1000 3C00 01
  3C00 3C00 0000 00
  0001 3800 0000 03
  3C01 3C01 BC02 0010 00
  $ answer f16_div '3C00 8000'; answer f16_div '0000 0000'; answer f16_rem '4500 4000'; answer f16_sqrt 4000
  3C00 8000 FC00 08
  0000 0000 7FFF 10
  4500 4000 3C00 00
  4000 3DA8 01
  $ answer f16_roundToInt 4100; answer f16_eq '8000 0000'; answer f16_eq '7E00 7E00'
  > answer f16_eq_signaling '7E00 7E00'
  4100 4000 00
  8000 0000 1 00
  7E00 7E00 0 00
  7E00 7E00 0 10
  $ answer f16_le '7E00 3C00'; answer f16_le_quiet '3C00 3C00'; answer f16_lt 'BC00 3C00'
  > answer f16_lt_quiet '7D00 3C00'
  7E00 3C00 0 10
  3C00 3C00 1 00
  BC00 3C00 1 00
  7D00 3C00 0 10
  $ answer f16_to_f32 0001; answer f32_to_f16 477FF000; answer f64_to_f16 3E60000000000001
  > answer f16_to_i32 C500
  0001 33800000 00
  477FF000 7C00 05
  3E60000000000001 0001 03
  C500 FFFFFFFB 00
  $ answer f16_to_ui32 C500; answer f32_to_ui64 5F800000; answer f64_to_i64 C3E0000000000000
  > answer i32_to_f16 FFFFFFFF
  C500 00000000 10
  5F800000 FFFFFFFFFFFFFFFF 10
  C3E0000000000000 8000000000000000 00
  FFFFFFFF BC00 00
  $ answer ui64_to_f32 FFFFFFFFFFFFFFFF; answer f64_add '3FF0000000000000 3CA0000000000000'
  > answer bf16_mul '3F81 3F81'
  FFFFFFFFFFFFFFFF 5F800000 01
  3FF0000000000000 3CA0000000000000 3FF0000000000000 01
  3F81 3F81 3F82 01
  $ answer tf32_add '1FC00 00001'; answer e4m3_add '7E 7E'; answer e5m2_add '7B 7B'
  1FC00 00001 1FC00 01
  7E 7E 7F 05
  7B 7B 7C 05

Options have TestFloat's names. (1 - 2^-10) 2^-14 (1 + 2^-10) is below 2^-14, which it rounds to: whether
that is an underflow depends on when smallness is asked for.

  $ for mode in near_even minMag min max; do answer "f16_sqrt --rounding $mode" 4000; done
  4000 3DA8 01
  4000 3DA8 01
  4000 3DA8 01
  4000 3DA9 01
  $ answer 'f16_add --rounding near_maxMag' '3C00 1000'; answer 'f16_sub --rounding min' '3C00 3C00'
  3C00 1000 3C01 01
  3C00 3C00 8000 00
  $ answer 'f16_mul --tininess before' '03FF 3C01'; answer 'f16_mul --tininess after' '03FF 3C01'
  03FF 3C01 0400 03
  03FF 3C01 0400 01
  $ answer 'f16_roundToInt --exact' 4100; answer 'f16_to_i32 --exact --rounding max' 4100
  4100 4000 01
  4100 00000003 01
  $ answer 'f16_to_i32 --notexact --rounding max' 4100
  4100 00000003 00

Lines as they come: other results and flags, lower case, blanks, CR LF and a last line without end.

  $ printf '3C00 3C00 FFFF 1F\n3c00 4000\n  0  3C00\t\r\n7BFF 7BFF' | fp16lab softfloat f16_add
  3C00 3C00 4000 00
  3C00 4000 4200 00
  0000 3C00 3C00 00
  7BFF 7BFF 7C00 05
  $ fp16lab softfloat f16_add < /dev/null

Many lines keep their order: each sum of 100,000 is found by its first operand.

  $ seq 1065353216 1065453215 | xargs printf '%08X 00000000\n' > many
  $ fp16lab softfloat f32_add < many | awk '$1 != $3 || $4 != "00" { wrong++ } END { print NR, wrong + 0 }'
  100000 0
  $ fp16lab softfloat f32_add < many | cut -c 1-17 | cmp - many

A malformed line is quoted with its number, after the answers to the lines before it.

  $ printf '3C00 3C00\n3C00 zz\n3C00 3C00\n' | fp16lab softfloat f16_add
  3C00 3C00 4000 00
  fp16lab: error: softfloat: line 2: '3C00 zz': expected the operands of f16_add in hexadecimal, f16 (16 bits) f16 (16 bits), or these, the result and the flags
  [2]
  $ for line in 3C00 '' '3C00 13C00' '3C00 3C00 4000' '3C00 3C00 4000 00 00' '3C00 3C00 4000 20' 3C00,3C00 \
  > '0x3C00 3C00' \
  > '3C00 -3C00'; do echo "$line" | refused softfloat f16_add; done
  fp16lab: error: softfloat: line 1: '3C00': expected the operands of f16_add in hexadecimal, f16 (16 bits) f16 (16 bits), or these, the result and the flags
  fp16lab: error: softfloat: line 1: '': expected the operands of f16_add in hexadecimal, f16 (16 bits) f16 (16 bits), or these, the result and the flags
  fp16lab: error: softfloat: line 1: '3C00 13C00': expected the operands of f16_add in hexadecimal, f16 (16 bits) f16 (16 bits), or these, the result and the flags
  fp16lab: error: softfloat: line 1: '3C00 3C00 4000': expected the operands of f16_add in hexadecimal, f16 (16 bits) f16 (16 bits), or these, the result and the flags
  fp16lab: error: softfloat: line 1: '3C00 3C00 4000 00 00': expected the operands of f16_add in hexadecimal, f16 (16 bits) f16 (16 bits), or these, the result and the flags
  fp16lab: error: softfloat: line 1: '3C00 3C00 4000 20': expected the operands of f16_add in hexadecimal, f16 (16 bits) f16 (16 bits), or these, the result and the flags
  fp16lab: error: softfloat: line 1: '3C00,3C00': expected the operands of f16_add in hexadecimal, f16 (16 bits) f16 (16 bits), or these, the result and the flags
  fp16lab: error: softfloat: line 1: '0x3C00 3C00': expected the operands of f16_add in hexadecimal, f16 (16 bits) f16 (16 bits), or these, the result and the flags
  fp16lab: error: softfloat: line 1: '3C00 -3C00': expected the operands of f16_add in hexadecimal, f16 (16 bits) f16 (16 bits), or these, the result and the flags
  $ echo 80000 | refused softfloat tf32_sqrt
  fp16lab: error: softfloat: line 1: '80000': expected the operands of tf32_sqrt in hexadecimal, tf32 (19 bits), or these, the result and the flags
  $ echo 10000000000000000 | refused softfloat f64_sqrt
  fp16lab: error: softfloat: line 1: '10000000000000000': expected the operands of f64_sqrt in hexadecimal, f64 (64 bits), or these, the result and the flags
  $ printf '\001G\n' | refused softfloat f16_sqrt
  fp16lab: error: softfloat: line 1: '?G': expected the operands of f16_sqrt in hexadecimal, f16 (16 bits), or these, the result and the flags
  $ head -c 1000 /dev/zero | tr '\0' 1 | refused softfloat f16_sqrt
  fp16lab: error: softfloat: line 1: '111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111...': expected the operands of f16_sqrt in hexadecimal, f16 (16 bits), or these, the result and the flags

The error for a mistyped name has the right one.

  $ refused softfloat
  fp16lab: error: softfloat: expected a FUNCTION, such as f16_add (--list shows all)
  $ for name in f16_ad f16_muladd f128_add; do refused softfloat $name; done
  fp16lab: error: softfloat: unknown function 'f16_ad'; did you mean 'f16_add'? (--list shows all)
  fp16lab: error: softfloat: unknown function 'f16_muladd'; did you mean 'f16_mulAdd'? (--list shows all)
  fp16lab: error: softfloat: unknown function 'f128_add'; did you mean 'f16_add'? (--list shows all)
  $ for mode in minmag odd; do refused softfloat f16_add --rounding $mode; done
  fp16lab: error: softfloat: --rounding 'minmag': known are near_even, minMag, min, max, near_maxMag; did you mean 'minMag'?
  fp16lab: error: softfloat: --rounding 'odd': known are near_even, minMag, min, max, near_maxMag
  $ refused softfloat f16_add --tininess never
  fp16lab: error: softfloat: --tininess 'never': known are before, after
  $ refused softfloat f16_add --exakt
  fp16lab: error: softfloat: unknown option '--exakt'; did you mean '--exact'?

The list has what TestFloat has, for each format.

  $ fp16lab softfloat --list | cut -f 1 > list
  $ for format in f16 f32 f64; do
  > for operation in add sub mul mulAdd div rem sqrt roundToInt eq le lt eq_signaling le_quiet lt_quiet; do
  > echo ${format}_$operation; done
  > for other in f16 f32 f64 ui32 ui64 i32 i64; do
  > [ $other = $format ] || printf '%s\n' ${format}_to_$other ${other}_to_$format; done
  > done | sort -u > known
  $ wc -l < known; sort list | comm -13 - known
  72
  $ grep -c '^f\([0-9]*\)_to_f\1$' list
  0
  [1]

An output that cannot be written is an error.

  $ echo 3C00 3C00 | fp16lab softfloat f16_add > /dev/full
  fp16lab: error: cannot write to the standard output: No space left on device
  [1]
