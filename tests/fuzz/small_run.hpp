// A run folder of three steps, file by file: seeds of the fuzz targets, and what surrounds the file that they
// damage.
#pragma once

#include <array>
#include <string_view>
#include <utility>

namespace fp16lab::fuzz {

inline constexpr std::array<std::pair<std::string_view, std::string_view>, 6> small_run{
    {{"manifest.json",
      R"({"schema":"fp16lab-run","schema_version":2,"argv":["fp16lab","train"],"config":"[train]\nseed = 1\n",)"
      R"("git_hash":"0123456789ab","seeds":{"train":1},"cpu":"a CPU","threads":2,"compiler":"g++ 12","flags":"-O3",)"
      R"("gemm_target":"avx2","gpu":null,"driver":null,"data":[{"path":"train.gz","sha256":"00"}],)"
      R"("start":"2026-01-31T12:34:56Z","end":null,"state":"running","message":"","resumptions":[]})"
      "\n"},
     {"steps.csv",
      "step,loss,loss_scale,found_inf,skipped,grad_norm,lr,underflow_rate,state_hash,seconds,epoch\n"
      "1,2.5,65536,1,1,inf,0.1,,0123456789abcde0,0.25,0.5\n"
      "2,2.25,32768,0,0,1.5,0.1,0.125,0123456789abcdef,0.5,1\n"
      "3,nan,32768,0,0,0.5,0.1,,0000000000000001,0.75,\n"},
     {"evaluations.csv",
      "step,split,loss,accuracy,bits_per_character\n2,test,2.5,0.5,\n3,train,1e-3,,1.25\n"},
     {"histograms.jsonl",
      R"({"step":1,"tensor":"fc1.weight","kind":"weight","dtype":"f16","loss_scale":65536,)"
      R"("before":{"zero":3,"inf":0,"nan":1,"first_exponent":-30,"counts":[1,0,18446744073709551615]},)"
      R"("after":{"zero":4,"inf":0,"nan":1,"first_exponent":0,"counts":[]}})"
      "\n"},
     {"overflows.jsonl",
      R"({"step":1,"kind":"gradient","loss_scale":65536,"optimizers":["all"],"parameters":["fc1.weight"]})"
      "\n"},
     {"culprits.jsonl",
      R"({"step":1,"pass":"backward","cause":"operation","op":"linear","part":"input gradient","layer":"fc1","tensor":"x",)"
      R"("dtype":"f16","shape":[2,3],"micro_batch":0,"loss_scale":65536,"element":4,"index":[1,1],"value":"Infinity",)"
      R"("nonfinite":1,"wide_value":70000,"wide_greatest":70000,)"
      R"("wide":{"zero":5,"inf":0,"nan":0,"first_exponent":16,"counts":[1]},"operands":[{"name":"w","dtype":"f16",)"
      R"("shape":[3],"smallest":0.5,"greatest":2,"histogram":{"zero":1,"inf":0,"nan":0,"first_exponent":0,"counts":[1]}}],)"
      R"("reached":true,"verdict":"unknown","black":"","excluded":"","binades":1,"advice":""})"
      "\n"}}};

}  // namespace fp16lab::fuzz
