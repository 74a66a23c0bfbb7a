// Which instruction sets Highway generates for this project. Include before any Highway header.
#pragma once

#include "hwy/detect_targets.h"

// The kernels keep vectors in arrays, which sizeless vector types do not allow; ARM machines use NEON.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif
