#include "tests/machines/ptx/table.hpp"

#include <functional>

#include "numerics/convert/convert.hpp"
#include "tests/machines/ptx/data_handlers.hpp"
#include "tests/machines/ptx/exchange_handlers.hpp"
#include "tests/machines/ptx/matrix_handlers.hpp"

namespace fp16lab::engine::ptx {

namespace {

// For atom and red.
constexpr auto sum = [](auto old, auto b) { return modular(old) + modular(b); };
constexpr auto least = [](auto old, auto b) { return b < old ? b : old; };
constexpr auto greatest = [](auto old, auto b) { return old < b ? b : old; };
constexpr auto both = [](auto old, auto b) { return old & b; };
constexpr auto either = [](auto old, auto b) { return old | b; };
constexpr auto same = [](auto a) { return a; };

// Approximate arithmetic, .ftz, and sums without .rn, which ptxas may contract, are left out on purpose.
constexpr Row rows[] = {
    // ---- integers ----
    bits<"add.{s16,u16,s32,u32,s64,u64}", "Ttt">("9.7.1.1", [](auto a, auto b) { return a + b; }),
    bits<"sub.{s16,u16,s32,u32,s64,u64}", "Ttt">("9.7.1.2", [](auto a, auto b) { return a - b; }),
    bits<"mul.lo.{s16,u16,s32,u32,s64,u64}", "Ttt">("9.7.1.3", [](auto a, auto b) { return modular(a) * b; }),
    numbers<"mul.hi.{s16,u16,s32,u32,s64,u64}", "Ttt">(
        "9.7.1.3", [](auto a, auto b) { return widened(a) * b >> (8 * sizeof(a)); }),
    numbers<"mul.wide.{s16,u16,s32,u32}", "Wtt">("9.7.1.3", [](auto a, auto b) { return widened(a) * b; }),
    bits<"mad.lo.{s16,u16,s32,u32,s64,u64}", "Tttt">(
        "9.7.1.4", [](auto a, auto b, auto c) { return modular(a) * b + c; }),
    numbers<"mad.wide.{s16,u16,s32,u32}", "Wttw">(
        "9.7.1.4", [](auto a, auto b, auto c) { return modular(widened(a) * b) + modular(c); }),
    numbers<"div.{s16,u16,s32,u32,s64,u64}", "Ttt">("9.7.1.8", quotient),
    numbers<"rem.{s16,u16,s32,u32,s64,u64}", "Ttt">("9.7.1.9", remainder),
    numbers<"abs.{s16,s32,s64}", "Tt">("9.7.1.10", [](auto a) { return a < 0 ? -modular(a) : modular(a); }),
    bits<"neg.{s16,s32,s64}", "Tt">("9.7.1.11", [](auto a) { return 0 - a; }),
    numbers<"min.{s16,u16,s32,u32,s64,u64}", "Ttt">("9.7.1.12", least),
    numbers<"max.{s16,u16,s32,u32,s64,u64}", "Ttt">("9.7.1.13", greatest),
    bits<"popc.{b32,b64}", "Rt">("9.7.1.14", [](auto a) { return std::popcount(a); }),
    bits<"clz.{b32,b64}", "Rt">("9.7.1.15", [](auto a) { return std::countl_zero(a); }),
    bits<"brev.{b32,b64}", "Tt">("9.7.1.18", bits_reversed),
    bits<"bfi.{b32,b64}", "Tttrr">("9.7.1.20", field_inserted),
    bits<"bmsk.clamp.b32", "Ttt">("9.7.1.23", ones),
    // ---- floating point ----
    numbers<"add.rn.{f32,f64}", "Ttt">("9.7.3.3", [](auto a, auto b) { return a + b; }),
    numbers<"sub.rn.{f32,f64}", "Ttt">("9.7.3.4", [](auto a, auto b) { return a - b; }),
    numbers<"mul.rn.{f32,f64}", "Ttt">("9.7.3.5", [](auto a, auto b) { return a * b; }),
    numbers<"fma.rn.{f32,f64}", "Tttt">("9.7.3.6", [](auto a, auto b, auto c) { return std::fma(a, b, c); }),
    numbers<"div.rn.{f32,f64}", "Ttt">("9.7.3.8", [](auto a, auto b) { return a / b; }),
    numbers<"neg.{f32,f64}", "Tt">("9.7.3.10", [](auto a) { return -a; }),
    numbers<"min.{f32,f64}", "Ttt">("9.7.3.11", extreme<true>),
    numbers<"max.{f32,f64}", "Ttt">("9.7.3.12", extreme<false>),
    numbers<"rcp.rn.{f32,f64}", "Tt">("9.7.3.13", [](auto a) { return decltype(a)(1) / a; }),
    numbers<"sqrt.rn.{f32,f64}", "Tt">("9.7.3.16", [](auto a) { return std::sqrt(a); }),
    // ---- comparison: ordered ones are false for a NaN, those with a u are true ----
    numbers<"setp.eq.{b16,b32,b64,s16,u16,s32,u32,s64,u64,f32,f64}", "Ptt">("9.7.6.2", std::equal_to<>{}),
    numbers<"setp.ne.{b16,b32,b64,s16,u16,s32,u32,s64,u64,f32,f64}", "Ptt">(
        "9.7.6.2", [](auto a, auto b) { return (a < b) | (a > b); }),
    numbers<"setp.lt.{s16,u16,s32,u32,s64,u64,f32,f64}", "Ptt">("9.7.6.2", std::less<>{}),
    numbers<"setp.le.{s16,u16,s32,u32,s64,u64,f32,f64}", "Ptt">("9.7.6.2", std::less_equal<>{}),
    numbers<"setp.gt.{s16,u16,s32,u32,s64,u64,f32,f64}", "Ptt">("9.7.6.2", std::greater<>{}),
    numbers<"setp.ge.{s16,u16,s32,u32,s64,u64,f32,f64}", "Ptt">("9.7.6.2", std::greater_equal<>{}),
    numbers<"setp.equ.{f32,f64}", "Ptt">("9.7.6.2", [](auto a, auto b) { return !((a < b) | (a > b)); }),
    numbers<"setp.neu.{f32,f64}", "Ptt">("9.7.6.2", [](auto a, auto b) { return a != b; }),
    numbers<"setp.ltu.{f32,f64}", "Ptt">("9.7.6.2", [](auto a, auto b) { return !(a >= b); }),
    numbers<"setp.leu.{f32,f64}", "Ptt">("9.7.6.2", [](auto a, auto b) { return !(a > b); }),
    numbers<"setp.gtu.{f32,f64}", "Ptt">("9.7.6.2", [](auto a, auto b) { return !(a <= b); }),
    numbers<"setp.geu.{f32,f64}", "Ptt">("9.7.6.2", [](auto a, auto b) { return !(a < b); }),
    numbers<"setp.num.{f32,f64}", "Ptt">("9.7.6.2", [](auto a, auto b) { return (a == a) & (b == b); }),
    numbers<"setp.nan.{f32,f64}", "Ptt">("9.7.6.2", [](auto a, auto b) { return (a != a) | (b != b); }),
    // ---- selection, bits, shifts ----
    bits<"selp.{b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64}", "Tttp">(
        "9.7.6.3", [](auto a, auto b, bool first) { return first ? a : b; }),
    bits<"and.pred", "Ppp">("9.7.8.1", both),
    bits<"and.{b16,b32,b64}", "Ttt">("9.7.8.1", both),
    bits<"or.pred", "Ppp">("9.7.8.2", either),
    bits<"or.{b16,b32,b64}", "Ttt">("9.7.8.2", either),
    bits<"xor.pred", "Ppp">("9.7.8.3", [](auto a, auto b) { return a ^ b; }),
    bits<"xor.{b16,b32,b64}", "Ttt">("9.7.8.3", [](auto a, auto b) { return a ^ b; }),
    bits<"not.pred", "Pp">("9.7.8.4", [](auto a) { return ~a; }),
    bits<"not.{b16,b32,b64}", "Tt">("9.7.8.4", [](auto a) { return ~a; }),
    bits<"shl.{b16,b32,b64}", "Ttr">("9.7.8.7", shifted_left),
    numbers<"shr.{b16,b32,b64,u16,u32,u64,s16,s32,s64}", "Ttr">("9.7.8.8", shifted_right),
    // ---- data movement and conversion ----
    bits<"mov.pred", "Pp">("9.7.9.3", same),
    bits<"mov.{b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64}", "Tt">("9.7.9.3", same),
    {"mov.b32", "Th2", "9.7.9.4", &pack<std::uint16_t>},
    {"mov.b64", "Th2", "9.7.9.4", &pack<std::uint32_t>},
    {"mov.b32", "H2t", "9.7.9.4", &unpack<std::uint16_t>},
    {"mov.b64", "H2t", "9.7.9.4", &unpack<std::uint32_t>},
    {"shfl.sync.up.b32", "Srrrr", "9.7.9.6", &shuffle<Shuffle::up>},
    {"shfl.sync.down.b32", "Srrrr", "9.7.9.6", &shuffle<Shuffle::down>},
    {"shfl.sync.bfly.b32", "Srrrr", "9.7.9.6", &shuffle<Shuffle::butterfly>},
    {"shfl.sync.idx.b32", "Srrrr", "9.7.9.6", &shuffle<Shuffle::index>},
    bits<"prmt.b32", "Tttt">("9.7.9.7", bytes_permuted),
    {"ld.volatile?.{param,global,const,shared,local}?.{ca,cg,cs,nc}?.{v2,v4}?."
     "{b8,b16,b32,b64,u8,u16,u32,u64,s8,s16,s32,s64,f32,f64}",
     "U*m", "9.7.9.8", nullptr, &bind_load},
    {"st.volatile?.{global,shared,local}?.{wb,cg,cs}?.{v2,v4}?."
     "{b8,b16,b32,b64,u8,u16,u32,u64,s8,s16,s32,s64,f32,f64}",
     "mu*", "9.7.9.11", nullptr, &bind_store},
    {"prefetch.global.L2", "m", "9.7.9.15", &nothing},
    bits<"cvta.to?.{global,const}.u64", "Tt">("9.7.9.20", same),
    bits<"cvta.shared.u64", "Tt">("9.7.9.20", [](auto a) { return a + shared_window; }),
    bits<"cvta.to.shared.u64", "Tt">("9.7.9.20", [](auto a) { return a - shared_window; }),
    bits<"cvta.local.u64", "Tt">("9.7.9.20", [](auto a) { return a + local_window; }),
    bits<"cvta.to.local.u64", "Tt">("9.7.9.20", [](auto a) { return a - local_window; }),
    {"cvt.{u8,u16,u32,u64,s8,s16,s32,s64}.{u8,u16,u32,u64,s8,s16,s32,s64}", "Uu", "9.7.9.21", nullptr,
     &bind_integer_conversion},
    numbers<"cvt.rn.f16.f32", "Tt">("9.7.9.21", [](float x) { return narrow<Binary16>(x).bits(); }),
    numbers<"cvt.rn.bf16.f32", "Tt">("9.7.9.21", [](float x) { return narrow<BrainFloat16>(x).bits(); }),
    numbers<"cvt.f32.f16", "Tt">("9.7.9.21", [](std::uint16_t x) { return widen(Float16::from_bits(x)); }),
    numbers<"cvt.f32.bf16", "Tt">("9.7.9.21", [](std::uint16_t x) { return widen(BFloat16::from_bits(x)); }),
    numbers<"cvt.f64.f32", "Tt">("9.7.9.21", same),
    numbers<"cvt.rn.f32.f64", "Tt">("9.7.9.21", same),
    numbers<"cvt.rn.{f32,f64}.{u16,u32,u64,s16,s32,s64}", "Tt">("9.7.9.21", same),
    numbers<"cvt.rzi.{u32,u64,s32,s64}.{f32,f64}", "Tt">("9.7.9.21", [](auto x) { return std::trunc(x); }),
    numbers<"cvt.rni.{u32,u64,s32,s64}.{f32,f64}", "Tt">("9.7.9.21", [](auto x) { return std::rint(x); }),
    {"cp.async.ca.shared.global", "sgir?", "9.7.9.25.3.1", nullptr, &bind_copy<4>},
    {"cp.async.cg.shared.global", "sgir?", "9.7.9.25.3.1", nullptr, &bind_copy<16>},
    {"cp.async.commit_group", "", "9.7.9.25.3.2", &commit_copies},
    {"cp.async.wait_group", "i", "9.7.9.25.3.3", &wait_for_groups},
    {"cp.async.wait_all", "", "9.7.9.25.3.3", &wait_for_all_copies},
    // ---- control ----
    {"bra", "l", "9.7.12.3", &branch<false>},
    {"bra.uni", "l", "9.7.12.3", &branch<true>},
    {"ret", "", "9.7.12.6", &leave},
    {"exit", "", "9.7.12.7", &leave},
    {"trap", "", "9.7.19.4", &trap},
    // ---- barriers, atomics, votes ----
    {"bar.sync", "0", "9.7.13.1", &block_barrier},
    {"bar.red.or.pred", "P0n", "9.7.13.1", &block_barrier},
    {"bar.warp.sync", "r", "9.7.13.2", &warp_barrier},
    {"membar.{cta,gl}", "", "9.7.13.4", &nothing},  // lanes go one after the other
    atomic("atom.{global,shared}?.add.{u32,s32,u64,s64}", "Tmt", "9.7.13.5", sum),
    atomic("atom.{global,shared}?.min.{u32,s32,u64,s64}", "Tmt", "9.7.13.5", least),
    atomic("atom.{global,shared}?.max.{u32,s32,u64,s64}", "Tmt", "9.7.13.5", greatest),
    atomic("atom.{global,shared}?.and.{b32,b64}", "Tmt", "9.7.13.5", both),
    atomic("atom.{global,shared}?.or.{b32,b64}", "Tmt", "9.7.13.5", either),
    atomic("atom.{global,shared}?.exch.{b32,b64}", "Tmt", "9.7.13.5", [](auto, auto b) { return b; }),
    atomic("atom.{global,shared}?.cas.{b32,b64}", "Tmtt", "9.7.13.5",
           [](auto old, auto b, auto c) { return old == b ? c : old; }),
    atomic("red.{global,shared}?.add.{u32,s32,u64,s64}", "mt", "9.7.13.6", sum),
    atomic("red.{global,shared}?.min.{u32,s32,u64,s64}", "mt", "9.7.13.6", least),
    atomic("red.{global,shared}?.max.{u32,s32,u64,s64}", "mt", "9.7.13.6", greatest),
    atomic("red.{global,shared}?.and.{b32,b64}", "mt", "9.7.13.6", both),
    atomic("red.{global,shared}?.or.{b32,b64}", "mt", "9.7.13.6", either),
    {"vote.sync.ballot.b32", "Rnr", "9.7.13.9", &vote<Vote::ballot>},
    {"vote.ballot.sync.b32", "Rnr", "9.7.13.9", &vote<Vote::ballot>},
    {"vote.sync.any.pred", "Pnr", "9.7.13.9", &vote<Vote::any>},
    {"vote.sync.all.pred", "Pnr", "9.7.13.9", &vote<Vote::all>},
    // ---- tensor cores ----
    {"ldmatrix.sync.aligned.m8n8.{x1,x2,x4}.shared.b16", "R*s", "9.7.14.5.15", &load_matrices<false>},
    {"ldmatrix.sync.aligned.m8n8.{x1,x2,x4}.trans.shared.b16", "R*s", "9.7.14.5.15", &load_matrices<true>},
    {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "R4r4r2r4", "9.7.14.5.14", &multiply<Float16, 16>},
    {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "R4r4r2r4", "9.7.14.5.14",
     &multiply<BFloat16, 16>},
    {"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "R4r2r1r4", "9.7.14.5.14", &multiply<Float16, 8>},
    {"mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", "R4r2r1r4", "9.7.14.5.14", &multiply<BFloat16, 8>},
    {"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "R4r4r2r4", "9.7.14.5.14", &multiply<float, 8>},
    {"mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", "R4r2r1r4", "9.7.14.5.14", &multiply<float, 4>},
};

// PTX ISA 10, "Special Registers".
constexpr SpecialRegister specials[] = {
    {"%tid.x", [](auto& block, auto thread) { return thread % block.extent[0]; }},
    {"%tid.y", [](auto& block, auto thread) { return thread / block.extent[0] % block.extent[1]; }},
    {"%tid.z", [](auto& block, auto thread) { return thread / block.extent[0] / block.extent[1]; }},
    {"%ntid.x", [](auto& block, auto) { return block.extent[0]; }},
    {"%ntid.y", [](auto& block, auto) { return block.extent[1]; }},
    {"%ntid.z", [](auto& block, auto) { return block.extent[2]; }},
    {"%ctaid.x", [](auto& block, auto) { return block.index[0]; }},
    {"%ctaid.y", [](auto& block, auto) { return block.index[1]; }},
    {"%ctaid.z", [](auto& block, auto) { return block.index[2]; }},
    {"%nctaid.x", [](auto& block, auto) { return block.grid[0]; }},
    {"%nctaid.y", [](auto& block, auto) { return block.grid[1]; }},
    {"%nctaid.z", [](auto& block, auto) { return block.grid[2]; }},
    {"%laneid", [](auto&, auto thread) { return thread % lanes; }},
    {"%lanemask_eq", [](auto&, auto thread) { return 1u << thread % lanes; }},
    {"%lanemask_lt", [](auto&, auto thread) { return (1u << thread % lanes) - 1; }},
    {"%lanemask_le", [](auto&, auto thread) { return (2u << thread % lanes) - 1; }},
    {"%lanemask_ge", [](auto&, auto thread) { return ~((1u << thread % lanes) - 1); }},
    {"%lanemask_gt", [](auto&, auto thread) { return ~((2u << thread % lanes) - 1); }},
};

/// What the parts of a spelling say that the machine has to know.
void read_parts(std::span<const std::string_view> parts, Instruction& instruction) {
  constexpr std::string_view spaces[] = {"generic", "param", "global", "const", "shared", "local"};
  for (const std::string_view part : parts) {
    if (const Type type = type_of(part); type.kind != '?') {
      if (instruction.to.bits == 0) instruction.to = type;
      instruction.from = type;
    }
    if (const auto* const found = std::find(std::begin(spaces), std::end(spaces), part);
        found != std::end(spaces))
      instruction.space = static_cast<Space>(found - spaces);
    if (part == "volatile" || part == "atom" || part == "red") instruction.is_strong = true;
    if (part == "v2" || part == "x2") instruction.vector = 2;
    if (part == "v4" || part == "x4") instruction.vector = 4;
  }
}

bool spells(const Row& row, std::span<const std::string_view> parts) {
  for (std::string_view rest = row.spelling; !rest.empty();) {
    const Part part = take_part(rest);
    if (!parts.empty() && any_word(part.words, [&](auto word) { return word == parts[0]; }))
      parts = parts.subspan(1);
    else if (!part.is_optional)
      return false;
  }
  return parts.empty();
}

std::vector<Slot> slots_of(const Row& row, std::uint8_t vector) {
  std::vector<Slot> slots;
  for (const char c : row.operands) {
    if (c == '?')
      slots.back().is_optional = true;
    else if (c == '*')
      slots.back().count = vector;
    else if (c >= '1' && c <= '9')
      slots.back().count = static_cast<std::uint8_t>(c - '0');
    else
      slots.push_back({c});
  }
  return slots;
}

}  // namespace

Spelling spelling_of(std::string_view word) {
  Spelling spelling;
  std::vector<std::string_view> parts;
  for (std::string_view rest = word; !rest.empty();) parts.push_back(take_word(rest, '.'));
  if (word.ends_with('.')) parts.emplace_back();
  read_parts(parts, spelling.instruction);
  for (const Row& row : rows)
    if (spells(row, parts)) spelling.forms.push_back({&row, slots_of(row, spelling.instruction.vector)});
  return spelling;
}

std::span<const SpecialRegister> special_registers() { return specials; }

}  // namespace fp16lab::engine::ptx
