// One value at a time: integers, floating point, comparisons, conversions. Expected bits are typed in, from PTX ISA 9.0
// and IEEE 754.
#include "tests/engine/backend/cuda/ptx/small_kernel.hpp"

namespace fp16lab::engine::ptx {
namespace {

TEST(PtxIntegers, AreModular) {
  EXPECT_EQ(word_of("add.s32 %r1, 2147483647, 1;"), 0x80000000u);
  EXPECT_EQ(word_of("sub.s32 %r1, 0, 1;"), 0xffffffffu);
  EXPECT_EQ(long_of("add.s64 %d3, -1, 2;"), 1u);
  EXPECT_EQ(word_of("mul.lo.s32 %r1, 65537, 65537;"), 0x00020001u);
  EXPECT_EQ(long_of("mul.wide.s32 %d3, -2, 3;"), static_cast<std::uint64_t>(-6));
  EXPECT_EQ(long_of("mul.wide.u32 %d3, -2, 3;"), 0x2fffffffau);
  EXPECT_EQ(long_of("mul.hi.s64 %d3, -1, 3;"), ~std::uint64_t{0});
  EXPECT_EQ(long_of("mul.hi.u64 %d3, -1, 3;"), 2u);
  EXPECT_EQ(word_of("mad.lo.s32 %r1, 7, -3, 1;"), static_cast<std::uint32_t>(-20));
  EXPECT_EQ(half_of("add.s16 %h1, 32767, 1;"), 0x8000u);
  EXPECT_EQ(word_of("neg.s32 %r1, 5;"), static_cast<std::uint32_t>(-5));
}

TEST(PtxIntegers, DivideTowardsZero) {
  EXPECT_EQ(word_of("div.s32 %r1, -7, 2;"), static_cast<std::uint32_t>(-3));
  EXPECT_EQ(word_of("rem.s32 %r1, -7, 2;"), static_cast<std::uint32_t>(-1));
  EXPECT_EQ(word_of("div.u32 %r1, -7, 2;"), 0x7ffffffcu);
  EXPECT_EQ(word_of("div.s32 %r1, -2147483648, -1;"), 0x80000000u);
  EXPECT_EQ(word_of("rem.s32 %r1, -2147483648, -1;"), 0u);
  EXPECT_EQ(long_of("rem.u64 %d3, -1, 10;"), 5u);
  EXPECT_EQ(word_of("min.s32 %r1, -1, 1;"), 0xffffffffu);
  EXPECT_EQ(word_of("min.u32 %r1, -1, 1;"), 1u);
  EXPECT_EQ(word_of("max.u32 %r1, -1, 1;"), 0xffffffffu);
}

TEST(PtxIntegers, ShiftsClampTheirAmount) {
  EXPECT_EQ(word_of("shl.b32 %r1, 1, 31;"), 0x80000000u);
  EXPECT_EQ(word_of("shl.b32 %r1, 1, 32;"), 0u);
  EXPECT_EQ(word_of("shr.u32 %r1, -1, 40;"), 0u);
  EXPECT_EQ(word_of("shr.s32 %r1, -4, 1;"), static_cast<std::uint32_t>(-2));
  EXPECT_EQ(word_of("shr.s32 %r1, -4, 99;"), 0xffffffffu);
  EXPECT_EQ(long_of("shl.b64 %d3, 1, 63;"), std::uint64_t{1} << 63);
  EXPECT_EQ(long_of("shr.s64 %d3, -4, 64;"), ~std::uint64_t{0});
  EXPECT_EQ(half_of("shl.b16 %h1, 1, 16;"), 0u);
}

TEST(PtxBits, AreAsTheIsaSays) {
  EXPECT_EQ(word_of("clz.b32 %r1, 1;"), 31u);
  EXPECT_EQ(word_of("clz.b64 %r1, 0;"), 64u);
  EXPECT_EQ(word_of("popc.b32 %r1, -1;"), 32u);
  EXPECT_EQ(word_of("brev.b32 %r1, 1;"), 0x80000000u);
  EXPECT_EQ(word_of("and.b32 %r1, 12, 10; or.b32 %r1, %r1, 1; xor.b32 %r1, %r1, 3; not.b32 %r1, %r1;"), ~10u);
  // Field ff of 8 bits at bit 4 of 0.
  EXPECT_EQ(word_of("bfi.b32 %r1, 4095, 0, 4, 8;"), 0xff0u);
  EXPECT_EQ(word_of("bfi.b32 %r1, 0, -1, 28, 8;"), 0x0fffffffu);
  EXPECT_EQ(word_of("bmsk.clamp.b32 %r1, 4, 8;"), 0xff0u);
  EXPECT_EQ(word_of("bmsk.clamp.b32 %r1, 30, 9;"), 0xc0000000u);
  EXPECT_EQ(word_of("bmsk.clamp.b32 %r1, 32, 1;"), 0u);
  // 4180 = 0x1054: bytes 4, 5, 0, 1 of {b, a}, the lowest first.
  EXPECT_EQ(word_of("mov.u32 %r2, 0x33221100; mov.u32 %r3, 0x77665544; prmt.b32 %r1, %r2, %r3, 4180;"),
            0x11005544u);
  // The high bit of a selector: the byte's sign.
  EXPECT_EQ(word_of("mov.u32 %r2, 0x000080; prmt.b32 %r1, %r2, 0, 0x9998;"), 0x000000ffu);
  EXPECT_EQ(word_of("mov.u16 %h1, 0x1234; mov.u16 %h2, 0x5678; mov.b32 %r1, {%h1, %h2};"), 0x56781234u);
  EXPECT_EQ(half_of("mov.b32 {%h2, %h1}, 0x56781234;"), 0x5678u);
}

TEST(PtxFloats, RoundToNearestEven) {
  EXPECT_EQ(float_of("add.rn.f32 %f1, 0f3F800000, 0f33800000;"),
            0x3f800000u);  // 1 + 2^-24: the tie goes to even
  EXPECT_EQ(float_of("add.rn.f32 %f1, 0f3F800001, 0f33800000;"), 0x3f800002u);
  EXPECT_EQ(float_of("sub.rn.f32 %f1, 0f00800000, 0f00000001;"), 0x007fffffu);  // subnormals stay
  EXPECT_EQ(float_of("mul.rn.f32 %f1, 0f00000003, 0f3F000000;"), 0x00000002u);
  EXPECT_EQ(float_of("mul.rn.f32 %f1, 0f7F7FFFFF, 0f40000000;"), 0x7f800000u);
  EXPECT_EQ(float_of("div.rn.f32 %f1, 0f3F800000, 0f40400000;"), 0x3eaaaaabu);
  EXPECT_EQ(float_of("sqrt.rn.f32 %f1, 0f40000000;"), 0x3fb504f3u);
  EXPECT_EQ(float_of("neg.f32 %f1, 0f3F800000;"), 0xbf800000u);
  EXPECT_EQ(double_of("div.rn.f64 %e1, 0d3FF0000000000000, 0d4008000000000000;"), 0x3fd5555555555555u);
  EXPECT_EQ(double_of("rcp.rn.f64 %e1, 0d4008000000000000;"), 0x3fd5555555555555u);
  EXPECT_EQ(double_of("sqrt.rn.f64 %e1, 0d4000000000000000;"), 0x3ff6a09e667f3bcdu);
}

TEST(PtxFloats, FmaRoundsOnce) {
  // (1 + 2^-12)^2 - (1 + 2^-11) = 2^-24: two roundings would give 0.
  EXPECT_EQ(float_of("fma.rn.f32 %f1, 0f3F800800, 0f3F800800, 0fBF801000;"), 0x33800000u);
  EXPECT_EQ(float_of("fma.rn.f32 %f1, 0f00000000, 0f00000000, 0f80000000;"), 0x00000000u);
  EXPECT_EQ(float_of("fma.rn.f32 %f1, 0f80000000, 0f00000000, 0f80000000;"), 0x80000000u);
}

TEST(PtxFloats, NansAreCanonical) {
  EXPECT_EQ(float_of("add.rn.f32 %f1, 0fFFC12345, 0f3F800000;"), 0x7fffffffu);
  EXPECT_EQ(float_of("sub.rn.f32 %f1, 0f7F800000, 0f7F800000;"), 0x7fffffffu);
  EXPECT_EQ(float_of("mul.rn.f32 %f1, 0f7F800000, 0f00000000;"), 0x7fffffffu);
  EXPECT_EQ(float_of("sqrt.rn.f32 %f1, 0fBF800000;"), 0x7fffffffu);
  EXPECT_EQ(float_of("sqrt.rn.f32 %f1, 0f80000000;"), 0x80000000u);
  EXPECT_EQ(float_of("fma.rn.f32 %f1, 0f7F800000, 0f00000000, 0f3F800000;"), 0x7fffffffu);
  EXPECT_EQ(float_of("mov.f32 %f1, 0fFFC12345;"), 0xffc12345u);  // a move changes nothing
}

TEST(PtxFloats, MinAndMaxKnowNansAndSignedZeros) {
  EXPECT_EQ(float_of("min.f32 %f1, 0f7FC00000, 0f3F800000;"), 0x3f800000u);
  EXPECT_EQ(float_of("max.f32 %f1, 0f3F800000, 0fFFC00000;"), 0x3f800000u);
  EXPECT_EQ(float_of("max.f32 %f1, 0fFFC00001, 0fFFC00000;"), 0x7fffffffu);
  EXPECT_EQ(float_of("min.f32 %f1, 0f00000000, 0f80000000;"), 0x80000000u);
  EXPECT_EQ(float_of("max.f32 %f1, 0f80000000, 0f00000000;"), 0x00000000u);
  EXPECT_EQ(float_of("max.f32 %f1, 0f00000000, 0f80000000;"), 0x00000000u);
  EXPECT_EQ(double_of("max.f64 %e1, 0d7FF8000000000000, 0d3FF0000000000000;"), 0x3ff0000000000000u);
}

TEST(PtxFloats, ComparisonsAreOrderedOrNot) {
  const std::string nan = "0f7FC00000, 0f3F800000;";
  for (const char* ordered : {"eq", "ne", "lt", "le", "gt", "ge", "num"})
    EXPECT_EQ(predicate_of(fmt::format("setp.{}.f32 %p1, {}", ordered, nan)), 0u) << ordered;
  for (const char* unordered : {"equ", "neu", "ltu", "leu", "gtu", "geu", "nan"})
    EXPECT_EQ(predicate_of(fmt::format("setp.{}.f32 %p1, {}", unordered, nan)), 1u) << unordered;
  EXPECT_EQ(predicate_of("setp.eq.f32 %p1, 0f00000000, 0f80000000;"), 1u);
  EXPECT_EQ(predicate_of("setp.neu.f32 %p1, 0f00000000, 0f80000000;"), 0u);
  EXPECT_EQ(predicate_of("setp.ltu.f64 %p1, 0d3FF0000000000000, 0d4000000000000000;"), 1u);
  EXPECT_EQ(predicate_of("setp.geu.f64 %p1, 0d3FF0000000000000, 0d4000000000000000;"), 0u);
  EXPECT_EQ(predicate_of("setp.lt.s32 %p1, -1, 1;"), 1u);
  EXPECT_EQ(predicate_of("setp.lt.u32 %p1, -1, 1;"), 0u);
  EXPECT_EQ(predicate_of("setp.gt.u16 %p1, -1, 1;"), 1u);
  EXPECT_EQ(predicate_of("setp.ne.s16 %p1, -1, -1;"), 0u);
}

TEST(PtxConversions, RoundToHalvesOnce) {
  const auto half = [](const char* x) { return half_of(fmt::format("cvt.rn.f16.f32 %h1, {};", x)); };
  EXPECT_EQ(half("0f3F800000"), 0x3c00u);
  EXPECT_EQ(half("0f477FEFFF"), 0x7bffu);  // below 65520
  EXPECT_EQ(half("0f477FF000"), 0x7c00u);  // 65520
  EXPECT_EQ(half("0f3F801000"), 0x3c00u);  // 1 + 2^-11: a tie
  EXPECT_EQ(half("0f3F803000"), 0x3c02u);
  EXPECT_EQ(half("0f3F801001"), 0x3c01u);
  EXPECT_EQ(half("0f33000000"), 0x0000u);  // 2^-25: a tie with 0
  EXPECT_EQ(half("0f33000001"), 0x0001u);
  EXPECT_EQ(half("0f33C00000"), 0x0002u);  // 1.5 * 2^-24: a tie
  EXPECT_EQ(half("0f387FFFFF"), 0x0400u);  // rounds up to the least normal one
  EXPECT_EQ(half("0f80000001"), 0x8000u);
  EXPECT_EQ(half("0fFF800000"), 0xfc00u);
  EXPECT_EQ(half("0fFFC12345"), 0x7fffu);
  const auto bfloat = [](const char* x) { return half_of(fmt::format("cvt.rn.bf16.f32 %h1, {};", x)); };
  EXPECT_EQ(bfloat("0f3F808000"), 0x3f80u);
  EXPECT_EQ(bfloat("0f3F818000"), 0x3f82u);
  EXPECT_EQ(bfloat("0f7F7FFFFF"), 0x7f80u);
  EXPECT_EQ(bfloat("0f00008000"), 0x0000u);
  EXPECT_EQ(bfloat("0f00008001"), 0x0001u);
  EXPECT_EQ(bfloat("0f007FFFFF"), 0x0080u);
  EXPECT_EQ(bfloat("0f7F800001"), 0x7fffu);
}

TEST(PtxConversions, WidenExactly) {
  const auto wide = [](const char* x) {
    return float_of(fmt::format("mov.u16 %h2, {}; cvt.f32.f16 %f1, %h2;", x));
  };
  EXPECT_EQ(wide("0x3c00"), 0x3f800000u);
  EXPECT_EQ(wide("0x0001"), 0x33800000u);
  EXPECT_EQ(wide("0x83ff"), 0xb87fc000u);
  EXPECT_EQ(wide("0xfc00"), 0xff800000u);
  EXPECT_EQ(wide("0xfe00"), 0x7fffffffu);
  EXPECT_EQ(wide("0x8000"), 0x80000000u);
  EXPECT_EQ(double_of("cvt.f64.f32 %e1, 0f00000001;"), 0x36a0000000000000u);
  EXPECT_EQ(float_of("cvt.rn.f32.f64 %f1, 0d3FF0000010000000;"), 0x3f800000u);  // a tie
  EXPECT_EQ(float_of("cvt.rn.f32.f64 %f1, 0d3FF0000010000001;"), 0x3f800001u);
  EXPECT_EQ(float_of("cvt.rn.f32.u32 %f1, -1;"), 0x4f800000u);
  EXPECT_EQ(double_of("cvt.rn.f64.s64 %e1, -1;"), 0xbff0000000000000u);
  EXPECT_EQ(double_of("cvt.rn.f64.u64 %e1, -1;"), 0x43f0000000000000u);
}

TEST(PtxConversions, OfIntegersExtendBySourceType) {
  EXPECT_EQ(long_of("mov.u32 %r1, -5; cvt.s64.s32 %d3, %r1;"), static_cast<std::uint64_t>(-5));
  EXPECT_EQ(long_of("mov.u32 %r1, -5; cvt.u64.u32 %d3, %r1;"), 0xfffffffbu);
  EXPECT_EQ(word_of("mov.u64 %d3, 0x123456789; cvt.u32.u64 %r1, %d3;"), 0x23456789u);
  EXPECT_EQ(word_of("mov.u32 %r2, 0x1280; cvt.s32.s8 %r1, %r2;"), 0xffffff80u);
  EXPECT_EQ(word_of("mov.u16 %h2, -2; cvt.u32.u16 %r1, %h2;"), 0xfffeu);
  EXPECT_EQ(word_of("cvt.rzi.s32.f64 %r1, 0dBFFFFFFFFFFFFFFF;"), 0xffffffffu);
  EXPECT_EQ(word_of("cvt.rzi.s32.f64 %r1, 0d7FF8000000000000;"), 0u);
  EXPECT_EQ(word_of("cvt.rzi.s32.f64 %r1, 0d7FF0000000000000;"), 0x7fffffffu);
  EXPECT_EQ(word_of("cvt.rzi.u32.f32 %r1, 0fBF800000;"), 0u);
  EXPECT_EQ(word_of("cvt.rni.s32.f32 %r1, 0f40200000;"), 2u);  // 2.5
  EXPECT_EQ(long_of("cvt.rzi.s64.f64 %d3, 0dC3E0000000000000;"), std::uint64_t{1} << 63);
}

TEST(PtxPredicates, CombineAndSelect) {
  const std::string both = "setp.eq.s32 %p2, %r0, %r0; setp.ne.s32 %p3, %r0, %r0; ";
  EXPECT_EQ(predicate_of(both + "and.pred %p1, %p2, %p3;"), 0u);
  EXPECT_EQ(predicate_of(both + "or.pred %p1, %p2, %p3;"), 1u);
  EXPECT_EQ(predicate_of(both + "xor.pred %p1, %p2, %p2;"), 0u);
  EXPECT_EQ(predicate_of(both + "not.pred %p1, %p3;"), 1u);
  EXPECT_EQ(predicate_of("mov.pred %p1, 1;"), 1u);
  EXPECT_EQ(float_of(both + "selp.f32 %f1, 0f3F800000, 0f40000000, %p3;"), 0x40000000u);
  EXPECT_EQ(word_of(both + "mov.u32 %r1, 1; @%p3 mov.u32 %r1, 2; @!%p3 add.s32 %r1, %r1, 2;"), 3u);
}

TEST(PtxRegisters, BeginAsPoison) {
  EXPECT_EQ(word_of(""), 0xa5a5a5a5u);
  EXPECT_EQ(long_of(""), 0xa5a5a5a5a5a5a5a5u);
}

}  // namespace
}  // namespace fp16lab::engine::ptx
