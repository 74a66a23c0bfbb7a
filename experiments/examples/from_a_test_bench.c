/* What a hardware test bench's foreign call does (SystemVerilog's DPI, for one): load libfp16lab.so at run
 * time and compare a design's results with it, vector by vector.   cc from_a_test_bench.c -ldl; ./a.out
 * libfp16lab.so */
#include <dlfcn.h>
#include <fp16lab.h> /* for the enumerators; nothing is linked */
#include <stdio.h>

/* The design under test: a multiplier-adder that truncates each product to FP32. Hardware would be called
 * here. */
static float design(const uint16_t* a, const uint16_t* b, int k) {
  (void)a, (void)b;
  return (float)k * 0.25f;
}

int main(int argc, char** argv) {
  void* library = dlopen(argc > 1 ? argv[1] : "libfp16lab.so", RTLD_NOW);
  if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
  int (*dot)(const char*, int, int, const void*, ptrdiff_t, int, const void*, ptrdiff_t, size_t, const void*,
             void*);
  *(void**)&dot = dlsym(library, "fp16lab_dot");
  if (dot == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;

  uint16_t halves[16];
  for (int i = 0; i < 16; ++i) halves[i] = 0x3800; /* 0.5 */
  int mismatches = 0;
  for (int k = 0; k <= 16; ++k) {
    float expected = 0;
    if (dot("ampere", FP16LAB_F32, FP16LAB_F16, halves, 1, FP16LAB_F16, halves, 1, (size_t)k, NULL,
            &expected) != 0)
      return 1;
    mismatches += design(halves, halves, k) != expected;
  }
  printf("%d mismatches in 17 vectors\n", mismatches);
  return mismatches != 0;
}
