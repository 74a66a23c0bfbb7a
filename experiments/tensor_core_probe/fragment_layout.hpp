// Which element of a tile sits in which register of which lane (PTX ISA, "Matrix Fragments for mma.m16n8k*"
// and "Register Fragments for wgmma.mma_async.m64nNk*").
//
// Counted in bytes along k, every operand format has the same layout: a 32-bit register holds 4 consecutive
// bytes of a row of A or of a column of B, whether these are one TF32, two FP16 or four FP8 elements. A
// warpgroup is four warps, each with 16 rows of its own. Tests compare with the tables of the PTX manual,
// element by element.
#pragma once

#include "numerics/platform/portability.hpp"

namespace fp16lab::probe {

/// The register's first byte within a row of A, or within a column of B.
struct RegisterPlace {
  int line;   ///< row of A (below 16), column of B (below 8)
  int bytes;  ///< offset along k
};

/// Register r of A: 2 registers where k spans 16 bytes, 4 where it spans 32.
FP16LAB_HD constexpr RegisterPlace a_register(int lane, int r) {
  return {lane / 4 + 8 * (r % 2), 4 * (lane % 4) + 16 * (r / 2)};
}

/// Register r of B: 1 register where k spans 16 bytes, 2 where it spans 32.
FP16LAB_HD constexpr RegisterPlace b_register(int lane, int r) { return {lane / 4, 4 * (lane % 4) + 16 * r}; }

struct ElementPlace {
  int row, column;
};

/// Element i < 4 of C and D (16 x 8). In FP16 elements 2r and 2r + 1 share register r, the even one in its
/// low half.
FP16LAB_HD constexpr ElementPlace accumulator_element(int lane, int i) {
  return {lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2};
}

}  // namespace fp16lab::probe
