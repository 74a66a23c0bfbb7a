// The parameters of a row of FP16LAB_BACKEND_VERBS, for functions that hand them on: of (verb, int, Tensor&)
// FP16LAB_PARAMETERS(int, Tensor&) is "int a, Tensor& b", and FP16LAB_ARGUMENTS(int, Tensor&) is "(a, b)".
#pragma once

#define FP16LAB_PARAMETERS_1(A) A a
#define FP16LAB_PARAMETERS_2(A, B) A a, B b
#define FP16LAB_PARAMETERS_3(A, B, C) A a, B b, C c
#define FP16LAB_PARAMETERS_4(A, B, C, D) A a, B b, C c, D d
#define FP16LAB_PARAMETERS_5(A, B, C, D, E) A a, B b, C c, D d, E e
#define FP16LAB_PARAMETERS_6(A, B, C, D, E, F) A a, B b, C c, D d, E e, F f
#define FP16LAB_SEVENTH(A, B, C, D, E, F, seventh, ...) seventh

#define FP16LAB_PARAMETERS(...)                                                                  \
  FP16LAB_SEVENTH(__VA_ARGS__, FP16LAB_PARAMETERS_6, FP16LAB_PARAMETERS_5, FP16LAB_PARAMETERS_4, \
                  FP16LAB_PARAMETERS_3, FP16LAB_PARAMETERS_2, FP16LAB_PARAMETERS_1, none)        \
  (__VA_ARGS__)
#define FP16LAB_ARGUMENTS(...)                                                                            \
  FP16LAB_SEVENTH(__VA_ARGS__, (a, b, c, d, e, f), (a, b, c, d, e), (a, b, c, d), (a, b, c), (a, b), (a), \
                  none)
