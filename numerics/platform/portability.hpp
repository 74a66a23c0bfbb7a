// Markers for functions that one source serves to the host compiler and to nvcc.
#pragma once

#if defined(__CUDACC__)
#define FP16LAB_HD __host__ __device__
#else
#define FP16LAB_HD
#endif
