// Compiles packing and kernels once per instruction set and exports the table of the one that the CPU has.
#include "numerics/gemm/emulated_gemm_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/gemm/emulated_gemm_kernels.cpp"
#include "numerics/platform/highway_targets.hpp"
// clang-format off: the order is Highway's protocol
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "numerics/gemm/emulated_gemm_general-inl.h"
#include "numerics/gemm/emulated_gemm_groups-inl.h"
#include "numerics/gemm/emulated_gemm_kernel-inl.h"
#include "numerics/gemm/emulated_gemm_pack-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace fp16lab::gemm_detail {
namespace HWY_NAMESPACE {

bool run_fast_of_row(const EmulatedTile& tile) {
  return tile.row->exact_group > 1 ? run_groups(tile) : run_fast(tile);
}

const EmulatedKernels& emulated_kernels_of_target() {
  static const EmulatedKernels kernels = {hwy::TargetName(HWY_TARGET),
                                          panel_columns,
                                          &pack_a,
                                          &pack_b,
                                          &pack_group_a,
                                          &pack_group_b,
                                          &run_fast_of_row,
                                          &run_general};
  return kernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace fp16lab::gemm_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp16lab {
namespace gemm_detail {
HWY_EXPORT(emulated_kernels_of_target);
const EmulatedKernels& emulated_kernels() { return HWY_DYNAMIC_DISPATCH(emulated_kernels_of_target)(); }
}  // namespace gemm_detail
}  // namespace fp16lab
#endif
