#include "engine/backend/cuda/ptx/table.hpp"

#include "engine/backend/cuda/ptx/handlers.hpp"
#include "engine/backend/cuda/ptx/rows.hpp"
#include "numerics/formats/small_float.hpp"

namespace fp16lab::engine::ptx {

namespace {

using enum FloatOperation;

// Of atom and red.
constexpr auto sum = [](auto old, auto b) { return modular(old) + modular(b); };
constexpr auto least = [](auto old, auto b) { return b < old ? b : old; };
constexpr auto greatest = [](auto old, auto b) { return old < b ? b : old; };
constexpr auto both = [](auto old, auto b) { return old & b; };
constexpr auto either = [](auto old, auto b) { return old | b; };
constexpr auto same = [](auto a) { return a; };

// Approximate arithmetic, .ftz, and sums without .rn, which ptxas may contract, are left out on purpose.
constexpr Row rows[] = {
    // ---- integers ----
    bits<"add.{s16,u16,s32,u32,s64,u64}", "Ttt">("9.7.1.1 add", [](auto a, auto b) { return a + b; }),
    bits<"sub.{s16,u16,s32,u32,s64,u64}", "Ttt">("9.7.1.2 sub", [](auto a, auto b) { return a - b; }),
    bits<"mul.lo.{s16,u16,s32,u32,s64,u64}", "Ttt">("9.7.1.3 mul", [](auto a, auto b) { return a * b; }),
    numbers<"mul.hi.{s16,u16,s32,u32,s64,u64}", "Ttt">(
        "9.7.1.3 mul", [](auto a, auto b) { return (widened(a) * widened(b)) >> (8 * sizeof(a)); }),
    numbers<"mul.wide.{s16,u16,s32,u32}", "Wtt">("9.7.1.3 mul",
                                                 [](auto a, auto b) { return widened(a) * widened(b); }),
    bits<"mad.lo.{s16,u16,s32,u32,s64,u64}", "Tttt">("9.7.1.4 mad",
                                                     [](auto a, auto b, auto c) { return a * b + c; }),
    numbers<"mad.wide.{s16,u16,s32,u32}", "Wttw">(
        "9.7.1.4 mad", [](auto a, auto b, auto c) { return modular(widened(a) * widened(b)) + modular(c); }),
    numbers<"div.{s16,u16,s32,u32,s64,u64}", "Ttt">("9.7.1.8 div",
                                                    [](auto a, auto b) { return quotient(a, b); }),
    numbers<"rem.{s16,u16,s32,u32,s64,u64}", "Ttt">("9.7.1.9 rem",
                                                    [](auto a, auto b) { return remainder(a, b); }),
    numbers<"abs.{s16,s32,s64}", "Tt">("9.7.1.10 abs",
                                       [](auto a) { return a < 0 ? 0 - modular(a) : modular(a); }),
    bits<"neg.{s16,s32,s64}", "Tt">("9.7.1.11 neg", [](auto a) { return 0 - a; }),
    numbers<"min.{s16,u16,s32,u32,s64,u64}", "Ttt">("9.7.1.12 min", least),
    numbers<"max.{s16,u16,s32,u32,s64,u64}", "Ttt">("9.7.1.13 max", greatest),
    bits<"popc.{b32,b64}", "Rt">("9.7.1.14 popc", [](auto a) { return std::popcount(a); }),
    bits<"clz.{b32,b64}", "Rt">("9.7.1.15 clz", [](auto a) { return std::countl_zero(a); }),
    bits<"brev.{b32,b64}", "Tt">("9.7.1.18 brev", [](auto a) { return bits_reversed(a); }),
    bits<"bfi.{b32,b64}", "Tttrr">(
        "9.7.1.20 bfi",
        [](auto a, auto b, auto position, auto length) { return field_inserted(a, b, position, length); }),
    bits<"bmsk.clamp.b32", "Ttt">("9.7.1.23 bmsk", [](auto a, auto b) { return ones(a, b); }),
    // ---- floating point ----
    numbers<"add.rn.{f32,f64}", "Ttt">(
        "9.7.3.3 add", [](auto a, auto b) { return a + b; }, add),
    numbers<"sub.rn.{f32,f64}", "Ttt">(
        "9.7.3.4 sub", [](auto a, auto b) { return a - b; }, sub),
    numbers<"mul.rn.{f32,f64}", "Ttt">(
        "9.7.3.5 mul", [](auto a, auto b) { return a * b; }, mul),
    numbers<"fma.rn.{f32,f64}", "Tttt">(
        "9.7.3.6 fma", [](auto a, auto b, auto c) { return std::fma(a, b, c); }, fma),
    numbers<"div.rn.{f32,f64}", "Ttt">(
        "9.7.3.8 div", [](auto a, auto b) { return a / b; }, div),
    numbers<"neg.{f32,f64}", "Tt">(
        "9.7.3.10 neg", [](auto a) { return -a; }, neg),
    numbers<"min.{f32,f64}", "Ttt">(
        "9.7.3.11 min", [](auto a, auto b) { return extreme<true>(a, b); }, min),
    numbers<"max.{f32,f64}", "Ttt">(
        "9.7.3.12 max", [](auto a, auto b) { return extreme<false>(a, b); }, max),
    numbers<"rcp.rn.{f32,f64}", "Tt">(
        "9.7.3.13 rcp", [](auto a) { return decltype(a)(1) / a; }, rcp),
    numbers<"sqrt.rn.{f32,f64}", "Tt">(
        "9.7.3.16 sqrt", [](auto a) { return std::sqrt(a); }, sqrt),
    // ---- comparison: ordered ones are false for a NaN, those with a u are true ----
    numbers<"setp.eq.{b16,b32,b64,s16,u16,s32,u32,s64,u64,f32,f64}", "Ptt">(
        "9.7.6.2 setp", [](auto a, auto b) { return a == b; }, compare),
    numbers<"setp.ne.{b16,b32,b64,s16,u16,s32,u32,s64,u64,f32,f64}", "Ptt">(
        "9.7.6.2 setp", [](auto a, auto b) { return (a < b) | (a > b); }, compare),
    numbers<"setp.lt.{s16,u16,s32,u32,s64,u64,f32,f64}", "Ptt">(
        "9.7.6.2 setp", [](auto a, auto b) { return a < b; }, compare),
    numbers<"setp.le.{s16,u16,s32,u32,s64,u64,f32,f64}", "Ptt">(
        "9.7.6.2 setp", [](auto a, auto b) { return a <= b; }, compare),
    numbers<"setp.gt.{s16,u16,s32,u32,s64,u64,f32,f64}", "Ptt">(
        "9.7.6.2 setp", [](auto a, auto b) { return a > b; }, compare),
    numbers<"setp.ge.{s16,u16,s32,u32,s64,u64,f32,f64}", "Ptt">(
        "9.7.6.2 setp", [](auto a, auto b) { return a >= b; }, compare),
    numbers<"setp.equ.{f32,f64}", "Ptt">(
        "9.7.6.2 setp", [](auto a, auto b) { return !((a < b) | (a > b)); }, compare),
    numbers<"setp.neu.{f32,f64}", "Ptt">(
        "9.7.6.2 setp", [](auto a, auto b) { return a != b; }, compare),
    numbers<"setp.ltu.{f32,f64}", "Ptt">(
        "9.7.6.2 setp", [](auto a, auto b) { return !(a >= b); }, compare),
    numbers<"setp.leu.{f32,f64}", "Ptt">(
        "9.7.6.2 setp", [](auto a, auto b) { return !(a > b); }, compare),
    numbers<"setp.gtu.{f32,f64}", "Ptt">(
        "9.7.6.2 setp", [](auto a, auto b) { return !(a <= b); }, compare),
    numbers<"setp.geu.{f32,f64}", "Ptt">(
        "9.7.6.2 setp", [](auto a, auto b) { return !(a < b); }, compare),
    numbers<"setp.num.{f32,f64}", "Ptt">(
        "9.7.6.2 setp", [](auto a, auto b) { return (a == a) & (b == b); }, compare),
    numbers<"setp.nan.{f32,f64}", "Ptt">(
        "9.7.6.2 setp", [](auto a, auto b) { return (a != a) | (b != b); }, compare),
    // ---- selection, bits, shifts ----
    bits<"selp.{b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64}", "Tttp">(
        "9.7.6.3 selp", [](auto a, auto b, bool first) { return first ? a : b; }),
    bits<"and.pred", "Ppp">("9.7.8.1 and", both),
    bits<"and.{b16,b32,b64}", "Ttt">("9.7.8.1 and", both),
    bits<"or.pred", "Ppp">("9.7.8.2 or", either),
    bits<"or.{b16,b32,b64}", "Ttt">("9.7.8.2 or", either),
    bits<"xor.pred", "Ppp">("9.7.8.3 xor", [](auto a, auto b) { return a ^ b; }),
    bits<"xor.{b16,b32,b64}", "Ttt">("9.7.8.3 xor", [](auto a, auto b) { return a ^ b; }),
    bits<"not.pred", "Pp">("9.7.8.4 not", [](auto a) { return ~a; }),
    bits<"not.{b16,b32,b64}", "Tt">("9.7.8.4 not", [](auto a) { return ~a; }),
    bits<"shl.{b16,b32,b64}", "Ttr">("9.7.8.7 shl", [](auto a, auto by) { return shifted_left(a, by); }),
    numbers<"shr.{b16,b32,b64,u16,u32,u64,s16,s32,s64}", "Ttr">(
        "9.7.8.8 shr", [](auto a, auto by) { return shifted_right(a, by); }),
    // ---- data movement and conversion ----
    bits<"mov.pred", "Pp">("9.7.9.3 mov", same),
    bits<"mov.{b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64}", "Tt">("9.7.9.3 mov", same),
    {"mov.{b32,b64}", "Th", "9.7.9.4 mov", &bind_pack},
    {"mov.{b32,b64}", "Ht", "9.7.9.4 mov", &bind_unpack},
    {"shfl.sync.up.b32", "Srrrr", "9.7.9.6 shfl.sync", &always<&shuffle<Shuffle::up>>},
    {"shfl.sync.down.b32", "Srrrr", "9.7.9.6 shfl.sync", &always<&shuffle<Shuffle::down>>},
    {"shfl.sync.bfly.b32", "Srrrr", "9.7.9.6 shfl.sync", &always<&shuffle<Shuffle::butterfly>>},
    {"shfl.sync.idx.b32", "Srrrr", "9.7.9.6 shfl.sync", &always<&shuffle<Shuffle::index>>},
    bits<"prmt.b32", "Tttt">("9.7.9.7 prmt", [](auto a, auto b, auto c) { return bytes_permuted(a, b, c); }),
    {"ld.volatile?.{param,global,const,shared,local}?.{ca,cg,cs,nc}?.{v2,v4}?."
     "{b8,b16,b32,b64,u8,u16,u32,u64,s8,s16,s32,s64,f32,f64}",
     "U*m", "9.7.9.8 ld", &bind_load},
    {"st.volatile?.{global,shared,local}?.{wb,cg,cs}?.{v2,v4}?."
     "{b8,b16,b32,b64,u8,u16,u32,u64,s8,s16,s32,s64,f32,f64}",
     "mu*", "9.7.9.11 st", &bind_store},
    {"prefetch.global.L2", "m", "9.7.9.15 prefetch", &always<&nothing>},
    bits<"cvta.to?.{global,const}.u64", "Tt">("9.7.9.20 cvta", same),
    bits<"cvta.shared.u64", "Tt">("9.7.9.20 cvta", [](auto a) { return a + shared_window; }),
    bits<"cvta.to.shared.u64", "Tt">("9.7.9.20 cvta", [](auto a) { return a - shared_window; }),
    bits<"cvta.local.u64", "Tt">("9.7.9.20 cvta", [](auto a) { return a + local_window; }),
    bits<"cvta.to.local.u64", "Tt">("9.7.9.20 cvta", [](auto a) { return a - local_window; }),
    {"cvt.{u8,u16,u32,u64,s8,s16,s32,s64}.{u8,u16,u32,u64,s8,s16,s32,s64}", "Uu", "9.7.9.21 cvt",
     &bind_integer_conversion},
    numbers<"cvt.rn.f16.f32", "Tt">(
        "9.7.9.21 cvt", [](float x) { return rounded<5>(x); }, convert),
    numbers<"cvt.rn.bf16.f32", "Tt">(
        "9.7.9.21 cvt", [](float x) { return rounded<8>(x); }, convert),
    numbers<"cvt.f32.f16", "Tt">(
        "9.7.9.21 cvt", [](std::uint16_t x) { return expanded<5>(x); }, convert),
    numbers<"cvt.f32.bf16", "Tt">(
        "9.7.9.21 cvt", [](std::uint16_t x) { return expanded<8>(x); }, convert),
    numbers<"cvt.f64.f32", "Tt">("9.7.9.21 cvt", same, convert),
    numbers<"cvt.rn.f32.f64", "Tt">("9.7.9.21 cvt", same, convert),
    numbers<"cvt.rn.{f32,f64}.{u16,u32,u64,s16,s32,s64}", "Tt">("9.7.9.21 cvt", same, convert),
    numbers<"cvt.rzi.{u32,u64,s32,s64}.{f32,f64}", "Tt">(
        "9.7.9.21 cvt", [](auto x) { return std::trunc(x); }, convert),
    numbers<"cvt.rni.{u32,u64,s32,s64}.{f32,f64}", "Tt">(
        "9.7.9.21 cvt", [](auto x) { return std::nearbyint(x); }, convert),
    {"cp.async.ca.shared.global", "sgir?", "9.7.9.25.3.1 cp.async", &bind_copy<4>},
    {"cp.async.cg.shared.global", "sgir?", "9.7.9.25.3.1 cp.async", &bind_copy<16>},
    {"cp.async.commit_group", "", "9.7.9.25.3.2 cp.async.commit_group", &always<&commit_copies>},
    {"cp.async.wait_group", "i", "9.7.9.25.3.3 cp.async.wait_group", &always<&wait_for_groups>},
    {"cp.async.wait_all", "", "9.7.9.25.3.3 cp.async.wait_all", &always<&wait_for_all_copies>},
    // ---- control ----
    {"bra", "l", "9.7.12.3 bra", &always<&branch<false>>},
    {"bra.uni", "l", "9.7.12.3 bra", &always<&branch<true>>},
    {"ret", "", "9.7.12.6 ret", &always<&leave>},
    {"exit", "", "9.7.12.7 exit", &always<&leave>},
    {"trap", "", "9.7.19.4 trap", &always<&trap>},
    // ---- barriers, atomics, votes ----
    {"bar.sync", "0", "9.7.13.1 bar", &always<&block_barrier>},
    {"bar.red.or.pred", "P0n", "9.7.13.1 bar", &always<&block_barrier>},
    {"bar.warp.sync", "r", "9.7.13.2 bar.warp.sync", &always<&warp_barrier>},
    {"membar.{cta,gl}", "", "9.7.13.4 membar", &always<&nothing>},  // lanes go one after the other
    atomic<"atom.{global,shared}?.add.{u32,s32,u64,s64}", "Tmt">("9.7.13.5 atom", sum),
    atomic<"atom.{global,shared}?.min.{u32,s32,u64,s64}", "Tmt">("9.7.13.5 atom", least),
    atomic<"atom.{global,shared}?.max.{u32,s32,u64,s64}", "Tmt">("9.7.13.5 atom", greatest),
    atomic<"atom.{global,shared}?.and.{b32,b64}", "Tmt">("9.7.13.5 atom", both),
    atomic<"atom.{global,shared}?.or.{b32,b64}", "Tmt">("9.7.13.5 atom", either),
    atomic<"atom.{global,shared}?.exch.{b32,b64}", "Tmt">("9.7.13.5 atom", [](auto, auto b) { return b; }),
    atomic<"atom.{global,shared}?.cas.{b32,b64}", "Tmtt">(
        "9.7.13.5 atom", [](auto old, auto b, auto c) { return old == b ? c : old; }),
    atomic<"red.{global,shared}?.add.{u32,s32,u64,s64}", "_mt">("9.7.13.6 red", sum),
    atomic<"red.{global,shared}?.min.{u32,s32,u64,s64}", "_mt">("9.7.13.6 red", least),
    atomic<"red.{global,shared}?.max.{u32,s32,u64,s64}", "_mt">("9.7.13.6 red", greatest),
    atomic<"red.{global,shared}?.and.{b32,b64}", "_mt">("9.7.13.6 red", both),
    atomic<"red.{global,shared}?.or.{b32,b64}", "_mt">("9.7.13.6 red", either),
    {"vote.sync.ballot.b32", "Rnr", "9.7.13.9 vote.sync", &always<&vote<Vote::ballot>>},
    {"vote.ballot.sync.b32", "Rnr", "9.7.13.9 vote.sync", &always<&vote<Vote::ballot>>},
    {"vote.sync.any.pred", "Pnr", "9.7.13.9 vote.sync", &always<&vote<Vote::any>>},
    {"vote.sync.all.pred", "Pnr", "9.7.13.9 vote.sync", &always<&vote<Vote::all>>},
    // ---- tensor cores ----
    {"ldmatrix.sync.aligned.m8n8.{x1,x2,x4}.shared.b16", "R*s", "9.7.14.5.15 ldmatrix",
     &always<&load_matrices<false>>},
    {"ldmatrix.sync.aligned.m8n8.{x1,x2,x4}.trans.shared.b16", "R*s", "9.7.14.5.15 ldmatrix",
     &always<&load_matrices<true>>},
    {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "R4r4r2r4", "9.7.14.5.14 mma",
     &always<&multiply<Float16, 16>>},
    {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "R4r4r2r4", "9.7.14.5.14 mma",
     &always<&multiply<BFloat16, 16>>},
    {"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "R4r2r1r4", "9.7.14.5.14 mma",
     &always<&multiply<Float16, 8>>},
    {"mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", "R4r2r1r4", "9.7.14.5.14 mma",
     &always<&multiply<BFloat16, 8>>},
    {"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "R4r4r2r4", "9.7.14.5.14 mma",
     &always<&multiply<float, 8>>},
    {"mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", "R4r2r1r4", "9.7.14.5.14 mma",
     &always<&multiply<float, 4>>},
};

// PTX ISA 10, "Special Registers".
constexpr SpecialRegister specials[] = {
    special("%tid.x", [](const Block& block, std::uint32_t thread) { return thread % block.extent[0]; }),
    special("%tid.y", [](const Block& block,
                         std::uint32_t thread) { return thread / block.extent[0] % block.extent[1]; }),
    special("%tid.z", [](const Block& block,
                         std::uint32_t thread) { return thread / block.extent[0] / block.extent[1]; }),
    special("%ntid.x", [](const Block& block, std::uint32_t) { return block.extent[0]; }),
    special("%ntid.y", [](const Block& block, std::uint32_t) { return block.extent[1]; }),
    special("%ntid.z", [](const Block& block, std::uint32_t) { return block.extent[2]; }),
    special("%ctaid.x", [](const Block& block, std::uint32_t) { return block.index[0]; }),
    special("%ctaid.y", [](const Block& block, std::uint32_t) { return block.index[1]; }),
    special("%ctaid.z", [](const Block& block, std::uint32_t) { return block.index[2]; }),
    special("%nctaid.x", [](const Block& block, std::uint32_t) { return block.grid[0]; }),
    special("%nctaid.y", [](const Block& block, std::uint32_t) { return block.grid[1]; }),
    special("%nctaid.z", [](const Block& block, std::uint32_t) { return block.grid[2]; }),
    special("%laneid", [](const Block&, std::uint32_t thread) { return thread % lanes; }),
    special("%lanemask_eq", [](const Block&, std::uint32_t thread) { return 1u << thread % lanes; }),
    special("%lanemask_lt", [](const Block&, std::uint32_t thread) { return (1u << thread % lanes) - 1; }),
    special("%lanemask_le", [](const Block&, std::uint32_t thread) { return (2u << thread % lanes) - 1; }),
    special("%lanemask_ge", [](const Block&, std::uint32_t thread) { return ~((1u << thread % lanes) - 1); }),
    special("%lanemask_gt", [](const Block&, std::uint32_t thread) { return ~((2u << thread % lanes) - 1); }),
};

}  // namespace

std::span<const Row> instruction_rows() { return rows; }
std::span<const SpecialRegister> special_registers() { return specials; }

}  // namespace fp16lab::engine::ptx
