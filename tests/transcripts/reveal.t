`fp16lab reveal` finds out in which order a row, or a library's plan, adds the terms of a sum.

  $ . "$TESTDIR/setup.sh"
  $ fp16lab reveal --model hopper --in bf16 --acc f32 -k 64
  hopper, bf16 operands, f32 accumulator: a sum of 64 terms
  order     chain of 4 blocks of 16
  tree      [{0..15} {16..31} {32..47} {48..63}]
  depth     4 sums on the longest path of a term, at most 17 numbers in a sum
  calls     2545
  $ fp16lab reveal --model v100 -k 6 --long | tail -1
  calls     25
  $ fp16lab reveal --model volta -k 8 --json |
  > of_json '[x[k] for k in ("model", "operands", "in_words", "joins")]'
  ["volta", "f16", "chain of 2 blocks of 4", [[0, 1, 2, 3], [8, 4, 5, 6, 7]]]
  $ fp16lab reveal --model zen5 --plan onednn -k 1200 | head -3
  avx512_bf16, bf16 operands, f32 accumulator, plan onednn: a sum of 1200 terms
  plan      onednn, an output of mm of 1024 x 1024: avx512_bf16: chains of 1024, added in order
  order     restarts every 1024: 2 parts, the last of 176, each (ascending chain of 1024, the higher one of each pair first), their sums (one sum of 2)
  $ fp16lab reveal --model volta --plan split-k --parts 3 --partials f16 -k 24 --json | of_json 'x["short"]'
  "[[{0..3} {4..7}] [{8..11} {12..15}] [{16..19} {20..23}]]"

A row of the user's own, here of fused multiply-adds:

  $ printf 'operands = ["f16"]\n[[stage]]\nsum = "fma"\nproducts = 1\noutput = "fp32_nearest_even"\n' \
  > > fmas.toml
  $ fp16lab reveal --row fmas.toml -k 9 | head -2
  fmas, f16 operands, f32 accumulator: a sum of 9 terms
  order     ascending chain of 9

The tree can be drawn.

  $ fp16lab reveal --model ampere -k 32 -o drawn > out 2>&1
  $ grep -o 'Order of a sum of 32 terms: ampere\|rounded once' drawn/order-ampere-f16-f32-32.svg | sort -u
  Order of a sum of 32 terms: ampere
  rounded once

Mistakes are one line.

  $ for options in '' '--model hoper' '--model hopper --in f15' '--model volta --in bf16' \
  > '--model h100 --in e4m3' \
  > '--model hopper --row own.toml' '--row absent.toml' '--model hopper --plan onednn' \
  > '--model zen5 --plan onednn --parts 2' '--model hopper -k 0' '--model hopper -k 5000'
  > do refused reveal $options; done
  fp16lab: error: reveal: expected --model NAME: volta, turing, ampere, *; or --row FILE.toml (glob)
  fp16lab: error: reveal: unknown tensor-core model 'hoper': known are volta, turing, ampere, *; did you mean 'hopper'? (glob)
  fp16lab: error: reveal: unknown operand format 'f15': known are f16, bf16, tf32, e4m3, e5m2, e3m2, e2m3, e2m1; did you mean 'f16'?
  fp16lab: error: reveal: tensor-core model 'volta' has no bf16 operands with f32 accumulators; it has f16 with f32, f16 with f16
  fp16lab: error: reveal: tensor-core model 'h100' has two rows for e4m3 operands with f32 accumulators, which give different bits: hopper (sm_90 mma.sync (H100, H200)) and hopper-wgmma (sm_90a wgmma (H100, H200)); name one of them
  fp16lab: error: reveal: expected one of --model NAME: volta, turing, ampere, *; or --row FILE.toml (glob)
  fp16lab: error: --row: cannot read absent.toml: No such file or directory
  fp16lab: error: reveal: plan 'onednn': it takes the row avx512_bf16, not hopper
  fp16lab: error: reveal: --parts: plan 'onednn' does not depend on it, but on call, m, n, transposed, batch, library-threads
  fp16lab: error: --terms: '0': expected an integer from 1 to 4096
  fp16lab: error: --terms: '5000': expected an integer from 1 to 4096
