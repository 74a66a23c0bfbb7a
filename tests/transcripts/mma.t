`fp16lab mma` answers lines of dot products: words of a, a tab, words of b, a tab, the word of c; then the
word of d.

  $ . "$TESTDIR/setup.sh"
  $ mma() { printf "$1" | fp16lab mma --model $2; }
  $ one='3c00\t3c00\t3f800000'

An answer has the accumulator's digits. Words may have prefixes, capitals, blanks and no leading zeros; lines
may end as on other systems, or not at all; comments and empty lines pass through; there may be no products,
or thousands.

  $ mma '3c00\t3c00\t0\n0001\t3c00\t0\n' 'volta --acc f16'
  3c00\t3c00\t0\t3c00 (esc)
  0001\t3c00\t0\t0001 (esc)
  $ mma '00\t38\t1\n' 'ada --in e4m3'
  00\t38\t1\t00000000 (esc)
  note: line 1: '1' was read as the word 0x1; a number has a point, 1.0
  $ mma '\t\t3f800000\n0x3C00  0X3c00 \t 3C00 a\t 0x3F800000 \n# a\tb\n\n  \n'"$one\r\n$one" hopper | cat -A
  ^I^I3f800000^I3f800000$
  0x3C00  0X3c00 ^I 3C00 a^I 0x3F800000 ^I40000002$
  # a^Ib$
  $
    $
  3c00^I3c00^I3f800000^I40000000$
  3c00^I3c00^I3f800000^I40000000$
  $ mma '' hopper
  $ ones=$(yes 3c00 | head -5000 | xargs)
  $ for model in volta ampere hopper; do mma "$ones\t$ones\t0\n" $model | cut -f 4; done
  459c4000
  459c4000
  459c4000

Many lines keep their order: 30,000 products by 1, of 1 + n/1024.

  $ awk 'BEGIN { for (i = 0; i < 30000; i++) printf "%04x\t3c00\t00000000\n", 15360 + i % 1024 }' > many
  $ awk '{ printf "%s\t%08x\n", $0, 1065353216 + (NR - 1) % 1024 * 8192 }' many > expected
  $ fp16lab mma --model hopper < many | cmp - expected

Numbers are beside words, and models side by side. 2^24 + 4 * 1.5 = 16777222, whose neighbours are 2 away.
Beside 2^24 Volta keeps multiples of 2 (F = 23): none of 1.5; Ampere of 1: four; Hopper of 1/2: all.

  $ words='3e00 3e00 3e00 3e00\t3c00 3c00 3c00 3c00\t4b800000\n'
  $ mma "$words" volta,ampere,hopper | tee all
  a       3e00 = 1.5, 3e00 = 1.5, 3e00 = 1.5, 3e00 = 1.5
  b       3c00 = 1, 3c00 = 1, 3c00 = 1, 3c00 = 1
  c       4b800000 = 16777216
  volta   4b800000 = 16777216
  ampere  4b800002 = 16777220
  hopper  4b800003 = 16777222
  $ mma "1.5 1.5 +1.5 3e00\t1.0 3c00 1.0 2^0\t2^24\n# next\n" 'V100 --model A100,H100' | diff - all
  7d6
  < # next
  [1]
  $ mma '0.1 -inf\t-2.0 nan\t0.0\n' 'hopper --acc f16'
  a       2e66 = 0.1, fc00 = -inf
  b       c000 = -2, 7fff = nan
  c       0000 = 0
  hopper  7fff = nan
  $ mma '0.5\t0x3c00\t0\n' volta | tail -1
  volta  3f000000 = 0.5
  $ mma "$one\n" 'hopper --decimal'
  a       3c00 = 1
  b       3c00 = 1
  c       3f800000 = 1
  hopper  40000000 = 2
  $ mma "$words" 'volta,ampere --explain' | grep '^  [a-z]*: '
    volta: f16 * f16 -> f32, block of 4 products and c, F 23, E0 -131, fp32_toward_zero
    ampere: f16 * f16 -> f32, block of 8 products and c, F 24, E0 -132, fp32_toward_zero

A register of FP32, of which TF32 is cut:

  $ mma '1.1\t3f800000\t0\n' 'ampere --in tf32' | tail -1
  ampere  3f8cc000 = 1.0996094

`--verify` compares with a fourth word, writes what differs and exits with 5. NaN is a pattern too.

  $ mma "# chip\n$one\t40000000\n$one\t40000001\n$one\t40000000\n" 'hopper --verify'
  3c00\t3c00\t3f800000\t40000001\t40000000 (esc)
  fp16lab: mma: 1 of 3 lines differ from hopper with f16 and f32
  [5]
  $ mma "$one\t40000000\n" 'hopper --verify'
  fp16lab: mma: 0 of 1 lines differ from hopper with f16 and f32
  $ mma "$one\t40000000\n1.0\t1.0\t1.0\t2.0\n" 'hopper --verify --quiet'
  $ mma '7e00\t3c00\t0\t7fc00000\n' 'hopper --verify --quiet'
  7e00\t3c00\t0\t7fc00000\t7fffffff (esc)
  fp16lab: mma: 1 of 1 lines differ from hopper with f16 and f32
  [5]

A file of lines may be verified; what a processor wrote says in its first line which row it is.

  $ printf '# vdpbf16ps of a chip\n3f80 3f80\t3f80 4000\t3f800000\t40800000\n' > captured.tsv
  $ fp16lab mma --verify captured.tsv
  fp16lab: mma: 0 of 1 lines differ from avx512_bf16 with bf16 and f32
  $ fp16lab mma --verify --quiet --model ampere --in bf16 captured.tsv
  $ printf "$one\t40000001" > captured.tsv
  $ fp16lab mma --model hopper --verify captured.tsv
  3c00\t3c00\t3f800000\t40000001\t40000000 (esc)
  fp16lab: mma: 1 of 1 lines differ from hopper with f16 and f32
  [5]
  $ refused mma --verify captured.tsv | cut -c 1-60
  fp16lab: error: mma: expected --model NAME: volta, turing, a
  $ refused mma --verify captured.tsv.not
  fp16lab: error: mma: cannot read captured.tsv.not: No such file or directory
  $ refused mma --capture gpu
  fp16lab: error: --capture: 'gpu': known are cpu; did you mean 'cpu'?

Sums in the order of a library's plan: Volta, K = 8 in two parts. FP16 rounds 2057 to 2056 and 1 + 2^-11 to 1.
The processor's plan depends on shape, layout and threads.

  $ parts='6800 4880 0 0 3c00 1000 0 0\t3c00 3c00 3c00 3c00 3c00 3c00 3c00 3c00\t0'
  $ for plan in 'split-k --parts 2' 'split-k --parts 2 --partials f16' 'split-k --parts 2 --partials bf16' \
  > instruction
  > do mma "$parts" "volta --plan $plan" | cut -f 4; done
  4500a002
  45009000
  45011000
  4500a002
  $ mma "$parts" volta | cut -f 4
  4500a002
  $ mma "$parts\t45009000\n" 'volta --verify --plan split-k --parts 2 --partials f16'
  fp16lab: mma: 0 of 1 lines differ from volta with f16 and f32 in the order of plan 'split-k'
  $ ones='3f80 3f80\t3f80 3f80\t0'
  $ mma "$ones" 'avx512_bf16 --plan onednn --m 4 --n 4 --transposed b' | cut -f 4
  40000000
  $ mma '3c00\t3c00\t0\n' 'avx512_bf16 --plan onednn --in f16 --call dot' | cut -f 4
  3f800000
  $ refuse() { printf "$1" | eval refused mma --model "$2"; }
  $ refuse "$parts" 'volta --plan mkl'
  fp16lab: error: mma: unknown plan 'mkl': known are instruction, onednn, cublaslt-12.8, split-k
  $ refuse "$parts" 'volta --plan onednn'
  fp16lab: error: mma: line 1: '6800 4880 0 0 3c00 1000 0 0 3c00 3c00 3c00 3c00 3c00 3c00 3c00 3c00 0': plan 'onednn': it takes the row avx512_bf16, not volta
  $ refuse "$parts" 'volta --plan onednn --parts 2'
  fp16lab: error: mma: --parts: plan 'onednn' does not depend on it, but on call, m, n, transposed, batch, library-threads
  $ refuse "$parts" 'volta --m 3'
  fp16lab: error: mma: --m: plan 'instruction' does not depend on it; --plan names another one
  $ refuse "$parts" 'volta --plan split-k --parts 3'
  fp16lab: error: mma: line 1: '6800 4880 0 0 3c00 1000 0 0 3c00 3c00 3c00 3c00 3c00 3c00 3c00 3c00 0': plan 'split-k': where 3 parts of K = 8 end is not known; a multiple of 12 has equal parts of whole instructions of volta
  $ refuse "$parts" 'volta --plan split-k --partials e4m3'
  fp16lab: error: --partials: 'e4m3': known are f32, f16, bf16
  $ refuse "$parts" 'volta --acc f16 --plan split-k'
  fp16lab: error: mma: plan 'split-k': partial sums are FP32, but volta accumulates in f16
  $ refuse '1.0\t1.0\t1.0\n' 'volta --plan split-k'
  fp16lab: error: mma: line 1: '1.0 1.0 1.0': c: plan 'split-k': where c enters is not known; expected 0
  $ for more in '--m 1 --n 2 --transposed a,b' '--transposed a --library-threads 3' '--call mv --n 2' \
  > '--call mm --batch 2' \
  > '--transposed c'; do refuse "$ones" "avx512_bf16 --plan onednn $more"; done
  fp16lab: error: mma: line 1: '3f80 3f80 3f80 3f80 0': plan 'onednn': a product of 1 x 2 x 2 in ATen's loops with both operands transposed was not looked at
  fp16lab: error: mma: line 1: '3f80 3f80 3f80 3f80 0': plan 'onednn': whether K of 1024 x 1024 x 2 is split in 3 threads is not known, only in one and two
  fp16lab: error: mma: --n 2 with --call mv: expected 1, or no --n
  fp16lab: error: mma: --batch with --call mm: only a bmm has several products
  fp16lab: error: mma: --transposed 'c': expected a, b or a,b

A malformed line is quoted with its number, after the answers to the lines before it.

  $ mma "# comment\n$one\n3c00 3g00\t3c00 3c00\t0\n" hopper
  # comment
  3c00\t3c00\t3f800000\t40000000 (esc)
  fp16lab: error: mma: line 3: '3c00 3g00 3c00 3c00 0': a: expected words of at most 4 hexadecimal digits, found '3g00'; a number has a point or a sign, as 0.5, -2.0 and 2^-24 have
  [2]
  $ for line in '3c00\t3c001\t0' '3c00\t3c00\t3f8000000' '3c00\t3c00\t' '3c00\t3c00\t0 0' '0x\t3c00\t0' \
  > '\055q\t3c00\t0' \
  > '3c00 3c00\t3c00\t0' '3c00 3c00 0' '3c00\t3c00' "$one\t40000000"; do refuse "$line" hopper; done
  fp16lab: error: mma: line 1: '3c00 3c001 0': b: expected words of at most 4 hexadecimal digits, found '3c001'; a number has a point or a sign, as 0.5, -2.0 and 2^-24 have
  fp16lab: error: mma: line 1: '3c00 3c00 3f8000000': c: expected words of at most 8 hexadecimal digits, found '3f8000000'; a number has a point or a sign, as 0.5, -2.0 and 2^-24 have
  fp16lab: error: mma: line 1: '3c00 3c00 ': c: expected words of at most 8 hexadecimal digits, found ''; a number has a point or a sign, as 0.5, -2.0 and 2^-24 have
  fp16lab: error: mma: line 1: '3c00 3c00 0 0': c: expected words of at most 8 hexadecimal digits, found '0 0'; a number has a point or a sign, as 0.5, -2.0 and 2^-24 have
  fp16lab: error: mma: line 1: '0x 3c00 0': a: expected words of at most 4 hexadecimal digits, found '0x'; a number has a point or a sign, as 0.5, -2.0 and 2^-24 have
  fp16lab: error: mma: line 1: '-q 3c00 0': a: expected words of at most 4 hexadecimal digits, found '-q'; a number has a point or a sign, as 0.5, -2.0 and 2^-24 have
  fp16lab: error: mma: line 1: '3c00 3c00 3c00 0': 2 words of a and 1 word of b; expected as many
  fp16lab: error: mma: line 1: '3c00 3c00 0': expected 3 fields with tabs between them, a-words, b-words, c-word; found 1 (a tab between them, spaces between words)
  fp16lab: error: mma: line 1: '3c00 3c00': expected 3 fields with tabs between them, a-words, b-words, c-word; found 2
  fp16lab: error: mma: line 1: '3c00 3c00 3f800000 40000000': expected 3 fields with tabs between them, a-words, b-words, c-word; found 4 (--verify compares a fourth, d-word)
  $ refuse "$one" 'hopper --verify'
  fp16lab: error: mma: line 1: '3c00 3c00 3f800000': expected 4 fields with tabs between them, a-words, b-words, c-word, d-word; found 3 (--verify compares with the fourth, the d-word of some hardware)
  $ refuse '5f9d3\t3f800000\t0' 'hopper --in tf32'
  fp16lab: error: mma: line 1: '5f9d3 3f800000 0': a: expected words of exactly 8 hexadecimal digits, found '5f9d3'; a number has a point or a sign, as 0.5, -2.0 and 2^-24 have
  $ refuse "$(yes 3 | head -5000 | tr -d '\n')" hopper
  fp16lab: error: mma: line 1: '333333333333333333333333333333333333333333333333333333333333333333333333333333333333333333333333333333333333333333333333...': expected 3 fields with tabs between them, a-words, b-words, c-word; found 1 (a tab between them, spaces between words)
  $ refuse '0.5 0.5\t1.0 1.0\t16777216\n' volta
  fp16lab: error: mma: line 1: '0.5 0.5 1.0 1.0 16777216': '16777216' may be a word or a number, since this line has numbers: write 0x16777216 or 16777216.0
  $ refuse '1.0 1e4\t1.0 1.0\t1.0\n' volta
  fp16lab: error: mma: line 1: '1.0 1e4 1.0 1.0 1.0': '1e4' may be a word or a number, since this line has numbers: write 0x1e4 or 1.0e4

Options that cannot be are refused.

  $ refused mma < /dev/null
  fp16lab: error: mma: expected --model NAME: volta, turing, ampere, *; or --row FILE.toml (glob)
  $ for options in hoper 'volta --in bf16' 'hopper --in fp16' 'hopper --acc bf16' 'ampere --in e4m3' \
  > 'hopper --in f16 --in-b bf16' 'hopper --block-size 65' 'hopper --fraction-bits 49' \
  > 'hopper --exponent-floor 1001' \
  > 'hopper --block-size x' 'hopper --subnormal-accumulator emin' \
  > 'hopper --acc f16 --subnormal-accumulator own' \
  > 'hopper --underflow-zero negative' 'hopper --fp8-order halves' 'hopper --in e4m3 --fp8-order half' \
  > 'hopper --in e4m3 --block-size 8' 'hopper --verfy' 'volta,ampere --verify' 'volta,h100 --in e4m3' \
  > 'H100 --in e4m3' \
  > 'hopper --json'; do refuse "$one" "$options"; done
  fp16lab: error: mma: unknown tensor-core model 'hoper': known are volta, turing, ampere, *; did you mean 'hopper'? (glob)
  fp16lab: error: mma: tensor-core model 'volta' has no bf16 operands with f32 accumulators; it has f16 with f32, f16 with f16
  fp16lab: error: mma: unknown operand format 'fp16': known are f16, bf16, tf32, e4m3, e5m2, e3m2, e2m3, e2m1; did you mean 'f16'?
  fp16lab: error: mma: unknown accumulator format 'bf16': known are f32, f16; did you mean 'f16'?
  fp16lab: error: mma: tensor-core model 'ampere' has no e4m3 operands with f32 accumulators; it has f16 with f32, bf16 with f32, f16 with f16, tf32 with f32, f64 with f64
  fp16lab: error: mma: --in f16 with --in-b bf16: only e4m3, e5m2, e3m2, e2m3, e2m1 can be mixed
  fp16lab: error: mma: tensor-core model 'hopper' has a block of 65 products; 1 to 64 are possible
  fp16lab: error: mma: tensor-core model 'hopper' keeps 49 fraction bits; 1 to 48 are possible
  fp16lab: error: mma: tensor-core model 'hopper' has exponent floor 1001; -1000 to 1000 are possible
  fp16lab: error: Could not convert: --block-size = x; see fp16lab mma --help
  fp16lab: error: mma: --subnormal-accumulator: hopper with f16 and f32 has no FP16 accumulator
  fp16lab: error: mma: --subnormal-accumulator 'own': known are emin, own_exponent, fp16_emin
  fp16lab: error: mma: --underflow-zero 'negative': known are keeps_sign, positive
  fp16lab: error: mma: --fp8-order: hopper with f16 and f32 does not go through FP16, as FP8 on hopper and blackwell does
  fp16lab: error: mma: --fp8-order 'half': known are pairs, halves
  fp16lab: error: mma: --block-size: hopper with e4m3 and f32 has two blocks of 16 in an instruction of 32 products; --fp8-order says which
  fp16lab: error: mma: unknown option '--verfy'; did you mean '--verify'?
  fp16lab: error: mma: --verify compares with one --model, found volta, ampere
  fp16lab: error: mma: tensor-core model 'volta' has no e4m3 operands with f32 accumulators; it has f16 with f32, f16 with f16
  fp16lab: error: mma: tensor-core model 'H100' has two rows for e4m3 operands with f32 accumulators, which give different bits: hopper (sm_90 mma.sync (H100, H200)) and hopper-wgmma (sm_90a wgmma (H100, H200)); name one of them
  fp16lab: error: mma: --json requires --explain; answers are lines of words

Rows with block scales take two more fields, the scales of a and of b. NVFP4 has one of UE4M3 for 16 elements; MXFP4 one of
E8M0 for 32, and how many there are says which. Groups of 16 products are added exactly. A NaN scale makes a NaN.

  $ e2m1=$(yes 02 | head -64 | xargs); scales='38 39 38 00'
  $ printf "$e2m1\t$e2m1\t$scales\t38 38 3a 38\t0\n" | fp16lab mma --model blackwell-mxf4nvf4 | cut -f 6
  42580000
  $ printf "$e2m1\t$e2m1\t7f 80\t7f 7f\t0\n" | fp16lab mma --model blackwell-mxf4nvf4 --scale e8m0 | cut -f 6
  42c00000
  $ printf "$e2m1\t$e2m1\tff 80\t7f 7f\t0\t7fffffff\n" | fp16lab mma --model blackwell-mxf8f6f4 --in e2m1 --verify
  fp16lab: mma: 0 of 1 lines differ from blackwell-mxf8f6f4 with e2m1 and f32
  $ printf "$e2m1\t$e2m1\t$scales\t38 38 3a 38\t0\n" | fp16lab mma --model blackwell-mxf4nvf4 --explain | grep 'scale a\|\.\.15\]\*'
    scale a[0..15]   38        1       1    scale b[0..15]   38  1       1
    scale a[16..31]  39        9*2^-3  1.1  scale b[16..31]  38  1       1
    scale a[32..47]  38        1       1    scale b[32..47]  3a  5*2^-2  1.25
    scale a[48..63]  00        0       0    scale b[48..63]  38  1       1
      a[0..15]*b[0..15]    16     0         + 10000.00000000000000000000000000000000000  16    0
  $ scaled() { printf "$1" | refused mma --model blackwell-mxf8f6f4 --in e2m1 $2; }
  $ scaled "02\t02\t0\n"; scaled "02\t02\t7f\t7f\t0\n"; scaled '' '--scale ue4m3'
  fp16lab: error: mma: line 1: '02 02 0': expected 5 fields with tabs between them, a-words, b-words, a-scales, b-scales, c-word; found 3 (this row has block scales)
  fp16lab: error: mma: line 1: '02 02 7f 7f 0': tensor-core model 'blackwell-mxf8f6f4' has no scales of e8m0 for 1 elements; it has e8m0 for 32 elements
  fp16lab: error: mma: --scale ue4m3: 'blackwell-mxf8f6f4' has e8m0 for 32 elements
  $ printf '02\t02\t0\n' | refused mma --model blackwell-tcgen05 --in e2m1 --scale e8m0
  fp16lab: error: mma: --scale: blackwell-tcgen05 with e2m1 and f32 takes no block scales; blackwell-mxf8f6f4 and blackwell-mxf4nvf4 do
  $ refused mma --model blackwell-mxf8f6f4,blackwell-tcgen05 --in e2m1 < /dev/null
  fp16lab: error: mma: blackwell-mxf8f6f4 with blackwell-tcgen05: only one of them takes block scales in its lines
  $ printf "$e2m1\t$e2m1\t7f\t7f\t0\n" | fp16lab mma --model blackwell-mxf4nvf4 --scale e8m0 2>&1 | grep -o 'has no scales.*'
  has no scales of e8m0 for 64 elements; it has ue4m3 for 16 elements, e8m0 for 16 elements, e8m0 for 32 elements

FP64's words have 16 digits, and a row is a chain of fmas.

  $ printf '3ff8000000000000\t4000000000000000\t3fd0000000000000\n1.5\t2.0\t0.25\n' | fp16lab mma --model hopper --in f64 | sed '/^$/d'
  3ff8000000000000\t4000000000000000\t3fd0000000000000\t400a000000000000 (esc)
  a       3ff8000000000000 = 1.5
  b       4000000000000000 = 2
  c       3fd0000000000000 = 0.25
  hopper  400a000000000000 = 3.25

`--row FILE` is a row of the user's own, for every mode. 1 - 2^-25 keeps its last bit with F = 25, and is 1
with F = 24. The file says its operands and accumulator too.

  $ line='0800\t8c00\t3f800000'
  $ printf 'base = "hopper"\nfraction_bits = 24\n' > own.toml
  $ row() { printf "$1" | fp16lab mma --row $2; }
  $ mma "$line" hopper | cut -f 4; row "$line" own.toml | cut -f 4
  > row "$line" 'own.toml --fraction-bits 25' | cut -f 4
  3f7fffff
  3f800000
  3f7fffff
  $ row "$line\t3f800000\n$line\t3f7fffff\n" 'own.toml --verify'
  0800\t8c00\t3f800000\t3f7fffff\t3f800000 (esc)
  fp16lab: mma: 1 of 2 lines differ from own with f16 and f32
  [5]
  $ row "$line" 'own.toml --explain' | grep 'own:\|a\[0\]\*'
    own: f16 * f16 -> f32, block of 16 products and c, F 24, E0 -133, fp32_toward_zero
      a[0]*b[0]  -2^-25  -25       - 00.000000000000000000000000|1  0     -2^-25
  $ (echo 'name = "x1"' && cat own.toml) > x1.toml
  $ row "$line" 'x1.toml --explain --json' | of_json 'x["row"]["name"], x["row"]["fraction_bits"]'
  ["x1", 24]
  $ printf 'base = "ada"\noperands = ["e5m2"]\noutput = "fp16_nearest_even"\n' > ada.toml
  $ row '3c\t3c\t3c00' ada.toml | cut -f 4
  4000
  $ cat > whole.toml <<END
  > name = "mine"
  > operands = ["f16", "bf16"]
  > block_size = 4
  > fraction_bits = 23
  > exponent_floor = -131
  > output = "fp32_toward_zero"
  > END
  $ sed 's/size = /&100/' whole.toml > large.toml; printf 'base = "ada"\noperands = ["e4m3"]\n' > e4m3.toml
  $ for options in 'whole.toml --model hopper' absent.toml . "''" large.toml 'whole.toml --in fp16' \
  > 'whole.toml --in tf32' \
  > 'whole.toml --in-b bf16' 'e4m3.toml --in-b e5m2' 'whole.toml --fp8-order halves'
  > do eval refused mma --row $options < /dev/null; done
  fp16lab: error: mma: --model with --row: expected one of them; base = "hopper" in whole.toml takes that model's row
  fp16lab: error: --row: cannot read absent.toml: No such file or directory
  fp16lab: error: --row: .: not a regular file (it is a folder)
  fp16lab: error: --row: '': expected a file
  fp16lab: error: large.toml:3: block_size = 1004: expected an integer from 1 to 64
  fp16lab: error: mma: unknown operand format 'fp16': known are f16, bf16, tf32, e4m3, e5m2, e3m2, e2m3, e2m1; did you mean 'f16'?
  fp16lab: error: whole.toml:2: operands = [ 'f16', 'bf16' ]: expected tf32 among them, which --in asks for
  fp16lab: error: mma: --in f16 with --in-b bf16: only e4m3, e5m2, e3m2, e2m3, e2m1 can be mixed
  fp16lab: error: mma: this row of tensor-core model 'e4m3' has no e5m2 operands
  fp16lab: error: mma: --fp8-order: mine with f16 and f32 does not go through FP16, as FP8 on hopper and blackwell does
  $ fp16lab mma --help-all > help; sed -n 's/^  \([a-z0-9_]*\)  .*/\1/p' help | xargs
  name base operands block_size fraction_bits exponent_floor output stage scales as_fp16 subnormal_accumulator underflow_zero
  $ for part in 'a-words TAB b-words TAB c-word' --model --in-b --verify --subnormal-accumulator \
  > --exponent-floor '--row FILE.toml' Examples: 'volta, turing, ampere' e4m3 'exit code 5'
  > do grep -q -- "$part" help || echo "$part"; done
