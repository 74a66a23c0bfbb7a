// Which instruction sets Highway generates for this project. Include before any other Highway header.
//
// On x86 they are SSE4, AVX2, AVX-512 (HWY_AVX3) and what every processor has; each more is ten seconds of compiling.
// SSSE3's are for processors before 2010 (to Highway SSE4 is SSE4.2 with AES), and the sets that newer Highways add were
// never measured here. Vectors are kept in arrays, which sizeless types do not allow: ARM machines use
// NEON.
#pragma once

#include "hwy/detect_targets.h"

#ifdef HWY_AVX3_SPR
#define FP16LAB_NEWER_TARGETS (HWY_AVX3_SPR | HWY_AVX3_ZEN4)
#else
#define FP16LAB_NEWER_TARGETS 0
#endif
#undef HWY_DISABLED_TARGETS  // detect_targets.h defines it, and its uses are expanded later
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | FP16LAB_NEWER_TARGETS | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
