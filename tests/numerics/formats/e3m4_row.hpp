// One row more in the list of formats (numerics/formats/dtype.hpp). The sources of numerics_e3m4 are compiled
// with it, and nothing else knows E3M4: 1 + 3 + 4 bits, infinities and NaNs as in IEEE 754.
#pragma once
#define FP16LAB_MORE_FP8_FORMATS(X) X(e3m4, 23, "F8_E3M4", SmallFloat<Format<3, 5>>)
