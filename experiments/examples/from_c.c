/* The C interface: a number rounded, a dot product of a tensor core, an error told.   cc from_c.c -lfp16lab
 */
#include <fp16lab.h>
#include <stdio.h>

int main(void) {
  const float numbers[3] = {65519.0f, 65520.0f, 2.98023224e-08f};
  uint16_t halves[3];
  if (fp16lab_round(FP16LAB_F16, FP16LAB_NEAREST_EVEN, numbers, 1, halves, 1, 3) != FP16LAB_OK) return 1;
  for (int i = 0; i < 3; ++i) printf("%.9g -> %04x\n", numbers[i], halves[i]);

  /* 1 * 1 + 3 * 2^-12 * 2^-12: what is left of the small products beside 1? */
  const uint16_t a[4] = {0x3c00, 0x0c00, 0x0c00, 0x0c00};
  float d = 0;
  if (fp16lab_dot("hopper", FP16LAB_F32, FP16LAB_F16, a, 1, FP16LAB_F16, a, 1, 4, NULL, &d) != FP16LAB_OK)
    return 1;
  printf("hopper: %.9g\n", d);

  if (fp16lab_dot("hoper", FP16LAB_F32, FP16LAB_F16, a, 1, FP16LAB_F16, a, 1, 4, NULL, &d) != FP16LAB_INVALID)
    return 1;
  printf("%s\n", fp16lab_last_error());
  return 0;
}
