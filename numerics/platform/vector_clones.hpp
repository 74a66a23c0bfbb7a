// Compiles a loop once per instruction set and picks at run time (GCC function multiversioning).
//
// The same source is vectorised at every width and contraction is off, so every clone gives the same bits.
// `flatten` inlines what the loop calls: callees outside would be compiled for the base instruction set only.
// Other compilers, and the sanitizers (which run before ifunc resolvers may), take the plain function.
#pragma once

#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12 && defined(__x86_64__) && \
    defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FP16LAB_VECTOR_CLONES \
  __attribute__((flatten, target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FP16LAB_VECTOR_CLONES
#endif

/// Before a loop whose iterations touch one index each: outputs may be the inputs themselves, never shifted
/// ones.
#if defined(__GNUC__) && !defined(__clang__)
#define FP16LAB_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
/// Before a loop whose length is a constant: GCC unrolls those of at most 16 iterations before it looks for vectors,
/// and then finds none.
#define FP16LAB_LOOP_OF_VECTORS _Pragma("GCC unroll 1")
#else
#define FP16LAB_INDEPENDENT_ITERATIONS
#define FP16LAB_LOOP_OF_VECTORS
#endif
