// The row of op_stats.csv, which a run with --op-stats writes.
#pragma once

#include <cstdint>
#include <string>

#include "numerics/files/run/record.hpp"

namespace fp16lab {

struct OpCount {
  FP16LAB_RECORD(
      OpCount, "op_stats.csv", 1,
      "Calls of one op in one layer, in the first step after the start or after a continuation, in "
      "order of first call: forward passes only, since backward passes run in the recorded dtypes.");
  FP16LAB_FIELD(std::string, layer, {}, "module path; empty: outside of all modules");
  FP16LAB_FIELD(std::string, op, {}, "as op lists name it");
  FP16LAB_FIELD(std::uint64_t, f16, 0, "calls that computed in FP16");
  FP16LAB_FIELD(std::uint64_t, bf16, 0, "in BF16");
  FP16LAB_FIELD(std::uint64_t, f32, 0, "in FP32");
  FP16LAB_FIELD(std::uint64_t, casts_to_low, 0,
                "of its inputs to 16 bits that were computed: a cast of a parameter that is found in the "
                "cache is not counted again");
  FP16LAB_FIELD(std::uint64_t, casts_to_f32, 0, "of its inputs to FP32");
  FP16LAB_FIELD(std::uint64_t, tf32, 0, "calls that computed in TF32; no column where there is none",
                .left_out = true);
  FP16LAB_RECORD_END(OpCount);
};

}  // namespace fp16lab
