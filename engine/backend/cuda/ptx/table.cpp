#include "engine/backend/cuda/ptx/table.hpp"

#include <algorithm>
#include <string>

namespace fp16lab::engine::ptx {

namespace {

constexpr std::string_view integers = ".{s16,u16,s32,u32,s64,u64}", bits = ".{b16,b32,b64}";

void bind_integer_compare(Form& form, std::string_view) { bind_compare(form); }
void bind_conversion(Form& form, std::string_view) { bind_convert(form); }

// Approximate arithmetic, .ftz, and sums without .rn, which ptxas may contract, are left out on purpose.
constexpr Row rows[] = {
    // ---- integers ----
    {"add", integers, "daa", "add", "9.7.1.1 add", &bind_integer},
    {"sub", integers, "daa", "sub", "9.7.1.2 sub", &bind_integer},
    {"mul", ".lo.{s16,u16,s32,u32,s64,u64}", "daa", "mul.lo", "9.7.1.3 mul", &bind_integer},
    {"mul", ".hi.{s16,u16,s32,u32,s64,u64}", "daa", "mul.hi", "9.7.1.3 mul", &bind_integer},
    {"mul", ".wide.{s16,u16,s32,u32}", "Daa", "mul.wide", "9.7.1.3 mul", &bind_integer},
    {"mad", ".lo.{s16,u16,s32,u32,s64,u64}", "daaa", "mad.lo", "9.7.1.4 mad", &bind_integer},
    {"mad", ".wide.{s16,u16,s32,u32}", "DaaA", "mad.wide", "9.7.1.4 mad", &bind_integer},
    {"div", integers, "daa", "div", "9.7.1.8 div", &bind_integer},
    {"rem", integers, "daa", "rem", "9.7.1.9 rem", &bind_integer},
    {"abs", ".{s16,s32,s64}", "da", "abs", "9.7.1.10 abs", &bind_integer},
    {"neg", ".{s16,s32,s64}", "da", "neg", "9.7.1.11 neg", &bind_integer},
    {"min", integers, "daa", "min", "9.7.1.12 min", &bind_integer},
    {"max", integers, "daa", "max", "9.7.1.13 max", &bind_integer},
    {"popc", ".{b32,b64}", "ra", "popc", "9.7.1.14 popc", &bind_integer},
    {"clz", ".{b32,b64}", "ra", "clz", "9.7.1.15 clz", &bind_integer},
    {"brev", ".{b32,b64}", "da", "brev", "9.7.1.18 brev", &bind_integer},
    {"bfi", ".{b32,b64}", "daaxx", "bfi", "9.7.1.20 bfi", &bind_integer},
    {"bmsk", ".clamp.b32", "dxx", "bmsk", "9.7.1.23 bmsk", &bind_integer},
    // ---- floating point ----
    {"add", ".rn.{f32,f64}", "daa", "add", "9.7.3.3 add", &bind_float},
    {"sub", ".rn.{f32,f64}", "daa", "sub", "9.7.3.4 sub", &bind_float},
    {"mul", ".rn.{f32,f64}", "daa", "mul", "9.7.3.5 mul", &bind_float},
    {"fma", ".rn.{f32,f64}", "daaa", "fma", "9.7.3.6 fma", &bind_float},
    {"div", ".rn.{f32,f64}", "daa", "div", "9.7.3.8 div", &bind_float},
    {"neg", ".{f32,f64}", "da", "neg", "9.7.3.10 neg", &bind_float},
    {"min", ".{f32,f64}", "daa", "min", "9.7.3.11 min", &bind_float},
    {"max", ".{f32,f64}", "daa", "max", "9.7.3.12 max", &bind_float},
    {"rcp", ".rn.{f32,f64}", "da", "rcp", "9.7.3.13 rcp", &bind_float},
    {"sqrt", ".rn.{f32,f64}", "da", "sqrt", "9.7.3.16 sqrt", &bind_float},
    // ---- comparison, selection, bits, shifts ----
    {"setp", ".{eq,ne}.{b16,b32,b64}", "paa", "setp", "9.7.6.2 setp", &bind_integer_compare},
    {"setp", ".{eq,ne,lt,le,gt,ge}.{s16,u16,s32,u32,s64,u64}", "paa", "setp", "9.7.6.2 setp",
     &bind_integer_compare},
    {"setp", ".{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.{f32,f64}", "paa", "setp", "9.7.6.2 setp",
     &bind_integer_compare},
    {"selp", ".{b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64}", "daaq", "selp", "9.7.6.3 selp", &bind_integer},
    {"and", ".pred", "pqq", "and", "9.7.8.1 and", &bind_integer},
    {"and", bits, "daa", "and", "9.7.8.1 and", &bind_integer},
    {"or", ".pred", "pqq", "or", "9.7.8.2 or", &bind_integer},
    {"or", bits, "daa", "or", "9.7.8.2 or", &bind_integer},
    {"xor", ".pred", "pqq", "xor", "9.7.8.3 xor", &bind_integer},
    {"xor", bits, "daa", "xor", "9.7.8.3 xor", &bind_integer},
    {"not", ".pred", "pq", "not", "9.7.8.4 not", &bind_integer},
    {"not", bits, "da", "not", "9.7.8.4 not", &bind_integer},
    {"shl", bits, "dax", "shl", "9.7.8.7 shl", &bind_integer},
    {"shr", ".{b16,b32,b64,u16,u32,u64,s16,s32,s64}", "dax", "shr", "9.7.8.8 shr", &bind_integer},
    // ---- data movement ----
    {"mov", ".pred", "pq", "mov", "9.7.9.3 mov", &bind_integer},
    {"mov", ".{b32,b64}", "dh", "pack", "9.7.9.4 mov", &bind_memory},
    {"mov", ".{b32,b64}", "Ha", "unpack", "9.7.9.4 mov", &bind_memory},
    {"mov", ".{b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64}", "da", "mov", "9.7.9.3 mov", &bind_integer},
    {"shfl", ".sync.{up,down,bfly,idx}.b32", "Sxxxx", "shfl", "9.7.9.6 shfl.sync", &bind_exchange},
    {"prmt", ".b32", "daax", "prmt", "9.7.9.7 prmt", &bind_integer},
    {"ld",
     ".volatile?.{param,global,const,shared,local}?.{ca,cg,cs,nc}?.{v2,v4}?.{b8,b16,b32,b64,u8,u16,u32,u64,"
     "s8,s16,s32,s64,f32,f64}",
     "Vm", "ld", "9.7.9.8 ld", &bind_memory},
    {"st",
     ".volatile?.{global,shared,local}?.{wb,cg,cs}?.{v2,v4}?.{b8,b16,b32,b64,u8,u16,u32,u64,s8,s16,s32,s64,"
     "f32,f64}",
     "mV", "st", "9.7.9.11 st", &bind_memory},
    {"prefetch", ".global.L2", "m", "prefetch", "9.7.9.15 prefetch", &bind_memory},
    {"cvta", ".to?.{global,shared,local,const}.u64", "da", "cvta", "9.7.9.20 cvta", &bind_memory},
    {"cvt", ".{-}?.{u8,u16,u32,u64,s8,s16,s32,s64}.{u8,u16,u32,u64,s8,s16,s32,s64}", "cC", "cvt",
     "9.7.9.21 cvt", &bind_conversion},
    {"cvt", ".rn.{f16,bf16}.f32", "cC", "cvt", "9.7.9.21 cvt", &bind_conversion},
    {"cvt", ".{-}?.f32.{f16,bf16}", "cC", "cvt", "9.7.9.21 cvt", &bind_conversion},
    {"cvt", ".{-}?.f64.f32", "cC", "cvt", "9.7.9.21 cvt", &bind_conversion},
    {"cvt", ".rn.f32.f64", "cC", "cvt", "9.7.9.21 cvt", &bind_conversion},
    {"cvt", ".rn.{f32,f64}.{u16,u32,u64,s16,s32,s64}", "cC", "cvt", "9.7.9.21 cvt", &bind_conversion},
    {"cvt", ".{rzi,rni}.{u32,u64,s32,s64}.{f32,f64}", "cC", "cvt", "9.7.9.21 cvt", &bind_conversion},
    {"cp", ".async.{ca,cg}.shared.global", "kgiy", "cp", "9.7.9.25.3.1 cp.async", &bind_memory},
    {"cp", ".async.commit_group", "", "cp.commit", "9.7.9.25.3.2 cp.async.commit_group", &bind_memory},
    {"cp", ".async.wait_group", "i", "cp.wait", "9.7.9.25.3.3 cp.async.wait_group", &bind_memory},
    {"cp", ".async.wait_all", "", "cp.wait_all", "9.7.9.25.3.3 cp.async.wait_all", &bind_memory},
    // ---- control ----
    {"bra", ".uni?", "l", "bra", "9.7.12.3 bra", &bind_control},
    {"ret", "", "", "ret", "9.7.12.6 ret", &bind_control},
    {"exit", "", "", "exit", "9.7.12.7 exit", &bind_control},
    // ---- barriers, atomics, votes ----
    {"bar", ".sync", "0", "bar.sync", "9.7.13.1 bar.sync", &bind_control},
    {"bar", ".red.or.pred", "p0q", "bar.red", "9.7.13.1 bar.red", &bind_control},
    {"bar", ".warp.sync", "x", "bar.warp", "9.7.13.2 bar.warp.sync", &bind_control},
    {"membar", ".{cta,gl}", "", "membar", "9.7.13.4 membar", &bind_control},
    {"atom", ".{global,shared}?.{add,min,max}.{u32,s32,u64,s64}", "dma", "atom", "9.7.13.5 atom",
     &bind_memory},
    {"atom", ".{global,shared}?.{and,or,exch}.{b32,b64}", "dma", "atom", "9.7.13.5 atom", &bind_memory},
    {"atom", ".{global,shared}?.cas.{b32,b64}", "dmaa", "atom", "9.7.13.5 atom", &bind_memory},
    {"vote", ".sync.ballot.b32", "rqx", "vote", "9.7.13.9 vote.sync", &bind_exchange},
    {"vote", ".ballot.sync.b32", "rqx", "vote", "9.7.13.9 vote.sync", &bind_exchange},
    {"vote", ".sync.{any,all}.pred", "pqx", "vote", "9.7.13.9 vote.sync", &bind_exchange},
    // ---- tensor cores ----
    {"ldmatrix", ".sync.aligned.m8n8.{x1,x2,x4}.trans?.shared.b16", "Mm", "ldmatrix", "9.7.14.5.15 ldmatrix",
     &bind_matrix},
    {"mma", ".sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "4424", "mma", "9.7.14.5.14 mma", &bind_matrix},
    {"mma", ".sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "4424", "mma", "9.7.14.5.14 mma",
     &bind_matrix},
    {"mma", ".sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "4214", "mma", "9.7.14.5.14 mma", &bind_matrix},
    {"mma", ".sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", "4214", "mma", "9.7.14.5.14 mma",
     &bind_matrix},
    {"mma", ".sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "4424", "mma", "9.7.14.5.14 mma",
     &bind_matrix},
    {"mma", ".sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", "4214", "mma", "9.7.14.5.14 mma",
     &bind_matrix},
};

/// Takes the next part off a pattern: "rn", or "{a,b}"; `optional`: whether a ? stands behind it.
std::string_view next_part(std::string_view& pattern, bool& optional) {
  pattern.remove_prefix(1);  // the dot
  const std::size_t end = pattern.starts_with('{') ? pattern.find('}') + 1
                                                   : std::min(pattern.find_first_of(".?"), pattern.size());
  const std::string_view part = pattern.substr(0, end);
  pattern.remove_prefix(end);
  optional = pattern.starts_with('?');
  if (optional) pattern.remove_prefix(1);
  return part;
}

bool is_one_of(std::string_view part, std::string_view word) {
  if (!part.starts_with('{')) return part == word;
  part = part.substr(1, part.size() - 2);
  while (!part.empty()) {
    const std::size_t end = std::min(part.find(','), part.size());
    if (part.substr(0, end) == word) return true;
    part.remove_prefix(std::min(end + 1, part.size()));
  }
  return false;
}

}  // namespace

std::span<const Row> table() { return rows; }

bool matches(const Row& row, std::span<const std::string_view> parts, Form& form) {
  form.parts.clear();
  std::string_view pattern = row.pattern;
  while (!pattern.empty()) {
    bool optional = false;
    const std::string_view part = next_part(pattern, optional);
    if (!parts.empty() && is_one_of(part, parts.front())) {
      form.parts.push_back(parts.front());
      parts = parts.subspan(1);
    } else if (optional) {
      form.parts.emplace_back();
    } else {
      return false;
    }
  }
  return parts.empty();
}

Type type_of(std::string_view name) {
  if (name == "pred") return {'p', 1};
  if (name == "bf16") return {'h', 16};
  if (name == "tf32") return {'t', 32};
  if (name.size() < 2 || std::string_view("usfb").find(name[0]) == std::string_view::npos) return {'?', 0};
  const std::string_view width = name.substr(1);
  const int found = width == "8" ? 8 : width == "16" ? 16 : width == "32" ? 32 : width == "64" ? 64 : 0;
  return {found == 0 ? '?' : name[0], found};
}

}  // namespace fp16lab::engine::ptx
