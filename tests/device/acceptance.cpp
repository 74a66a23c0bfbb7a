// exp_device_acceptance: does this GPU train with the bits of the emulator, how fast, and in how much memory?
//
// One command on a machine with a GPU runs everything that needs one, in the order of a first contact: what
// finds most comes first. A section is one program or several, each in a process of its own with a time
// limit: suites of this program (suites.cpp), other test programs, experiments, benchmarks,
// compute-sanitizer. One that crashes, hangs or loses the device ends its process, and the next one runs.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "engine/backend/cuda/runtime/devices.hpp"
#include "experiments/app/command_line.hpp"
#include "experiments/app/process.hpp"
#include "experiments/app/sweep/child_process.hpp"
#include "experiments/study/study.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/text/nesting.hpp"
#include "tests/device/settings.hpp"

namespace fp16lab::device {
namespace {

namespace fs = std::filesystem;
using experiments::CommandError;
using experiments::CommonOptions;
using experiments::ExitCode;
using experiments::Verdict;

struct Given {
  bool rehearse = false, quick = false, first = false;
  std::vector<std::string> sections;
  int seconds = 0;  ///< limit of each process; 0: its section's
};

struct Command {
  fs::path program;  ///< empty: it is not here
  std::vector<std::string> arguments;
  std::string name = {};  ///< its log's name, where a section has several; empty: stdout
  int failing = 5;        ///< the exit status that says that a check failed
  fs::path counts = {};   ///< where GoogleTest writes how many tests ran
};

/// What a section's commands are made of.
struct Frame {
  const CommonOptions& common;
  const Given& given;
  fs::path bin = fs::read_symlink("/proc/self/exe").parent_path();

  /// A program of this build; none where it is not built.
  fs::path sibling(const std::string& name) const { return fs::exists(bin / name) ? bin / name : fs::path(); }
  std::vector<std::string> own_options() const {
    std::vector<std::string> options{"--seed",           fmt::format("{}", common.seed.value_or(1)),
                                     "--threads",        fmt::format("{}", common.threads),
                                     "--quiet",          "-o",
                                     common.out.string()};
    if (given.quick) options.emplace_back("--quick");
    if (given.rehearse) options.emplace_back("--rehearse");
    return options;
  }
  /// A suite of this program.
  Command suite(const std::string& name) const {
    Command command{bin / "exp_device_acceptance", own_options()};
    for (const std::string& option : {"--gtest_filter=" + name + ".*", std::string("--gtest_brief=1"),
                                      "--gtest_output=json:" + (common.out / (name + ".json")).string()})
      command.arguments.push_back(option);
    command.counts = common.out / (name + ".json");
    return command;
  }
  /// One configuration on both back ends.
  Command lockstep(const std::string& name, const std::string& config, int steps, int quick_steps,
                   std::vector<std::string> set) const {
    Command command{sibling("exp_emulated_vs_device"), {"-c", config, "--quiet"}, name};
    const bool text = config.starts_with("charlm");
    if (text)
      set.insert(set.end(), {"data.name=text", "data.path=" + (common.out / "text.txt").string(),
                             "data.test_subset=0", "train.batch_size=32", "schedule.name=constant"});
    else
      set.emplace_back("data.name=random-images");
    if (given.rehearse) {
      set.emplace_back("train.batch_size=3");
      if (text) set.emplace_back("model.context=4");
      if (config == "classifier") set.emplace_back("model.layer.mlp1.widths=[8, 10]");
      if (config == "charlm_lstm")
        set.insert(set.end(), {"model.layer.embedding.embedding_dim=8", "model.layer.lstm.hidden_size=8"});
      if (config == "charlm_transformer")
        set.insert(set.end(),
                   {"model.block.h{}.repeat=1", "model.layer.tokens.embedding_dim=8",
                    "model.layer.positions.embedding_dim=8", "model.layer.h{}.attn.num_heads=2",
                    "model.layer.h{}.mlp.fc.out_features=32", "model.layer.h{}.mlp.proj.out_features=8"});
      command.arguments.emplace_back("--rehearse");
    }
    set.push_back(fmt::format("train.steps={}", given.rehearse ? 2 : given.quick ? quick_steps : steps));
    for (const std::string& one : set) command.arguments.insert(command.arguments.end(), {"--set", one});
    command.arguments.insert(command.arguments.end(), {"--threads", fmt::format("{}", common.threads), "-o",
                                                       (common.out / "training" / name).string()});
    return command;
  }
};

using Commands = std::vector<Command>;

const std::vector<std::string> o2{"amp.dialect=paddle", "amp.level=O2", "scaler.policy=dynamic"};
std::vector<std::string> with(std::vector<std::string> set, const std::vector<std::string>& more) {
  set.insert(set.end(), more.begin(), more.end());
  return set;
}

/// GoogleTest programs beside this one.
Commands test_programs(const Frame& frame) {
  Commands all;
  if (frame.given.rehearse) return all;  // CTest runs them on the PTX machine, each as NAME_ptx
  for (const auto& [name, filter] : {std::pair{"backend_conformance", "*/cuda"},
                                     {"cuda_device_backend", "*"},
                                     {"cuda_device_training", "*"},
                                     {"cuda_stream_histogram", "*"},
                                     {"train_memory_test", "*/cuda"},
                                     {"engine_shared_functions_cuda", "*"}})
    all.push_back({.program = frame.sibling(std::string("../tests/") + name),
                   .arguments = {std::string("--gtest_filter=") + filter, "--gtest_brief=1"},
                   .name = name,
                   .failing = 1});
  return all;
}

Commands probes(const Frame& frame) {
  if (frame.given.rehearse) return {};  // the PTX machine has neither wmma nor wgmma
  return {{frame.sibling("exp_tensor_core_probe"),
           {"--quiet", "-o", (frame.common.out / "probe").string(), "--outputs",
            frame.given.quick ? "400000" : "4000000"}}};
}

/// The verbs once more, each tool of compute-sanitizer watching.
Commands sanitizers(const Frame& frame) {
  Commands all;
  for (const char* const tool : {"memcheck", "synccheck", "racecheck"}) {
    const Command watched = frame.suite("verbs");
    Command command{cuda_tool("compute-sanitizer"),
                    {"--tool", tool, "--error-exitcode", "99", watched.program.string()},
                    tool,
                    99};
    command.arguments.insert(command.arguments.end(), watched.arguments.begin(), watched.arguments.end());
    if (!frame.given.quick) command.arguments.emplace_back("--quick");
    all.push_back(std::move(command));
  }
  return all;
}

Commands graphs(const Frame& frame) {
  return {frame.suite("capture"),
          frame.lockstep("graph", "classifier", 50, 10, with(o2, {"train.graph=true"}))};
}

Commands benchmark(const Frame& frame, const std::string& filter, const std::string& file) {
  Command command{frame.sibling("bench_device"),
                  {"--benchmark_filter=" + filter, "--benchmark_out=" + (frame.common.out / file).string(),
                   "--benchmark_out_format=json"}};
  if (frame.given.rehearse) command.arguments.emplace_back("--rehearse");
  return {command};
}

/// Our own product, with the counters of ncu where that is here.
Commands profile(const Frame& frame) {
  const std::string product = frame.given.rehearse ? "product/FP16_mma/16/" : "product/FP16_mma/8192/";
  Commands all = benchmark(frame, product, "profile.json");
  const fs::path ncu = cuda_tool("ncu");
  if (ncu.empty() || frame.given.rehearse) return all;
  std::vector<std::string> arguments{"--kernel-name",
                                     "multiply_tiles",
                                     "--launch-count",
                                     "1",
                                     "--set",
                                     "full",
                                     "--log-file",
                                     (frame.common.out / "profile.txt").string(),
                                     all[0].program.string()};
  arguments.insert(arguments.end(), all[0].arguments.begin(), all[0].arguments.end());
  all.push_back({ncu, arguments, "ncu"});
  return all;
}

/// Every kind of network, with the levels spread over them.
Commands trainings(const Frame& frame) {
  const std::vector<std::string> o1{"amp.level=O1", "scaler.policy=dynamic"};
  const std::vector<std::string> dropout{"model.layer.dropout.p=0.1", "model.layer.h{}.attn.dropout=0.1",
                                         "model.layer.h{}.attn.residual_dropout.p=0.1",
                                         "model.layer.h{}.mlp.dropout.p=0.1"};
  return {frame.lockstep("classifier-O2", "classifier", 200, 20, o2),
          frame.lockstep("classifier-O1-bf16", "classifier", 200, 20, {"amp.level=O1", "amp.dtype=bf16"}),
          frame.lockstep("classifier-O0", "classifier", 50, 5, {"amp.level=O0"}),
          frame.lockstep("lenet5-O2-nchw", "lenet5", 50, 5, o2),
          frame.lockstep("lenet5-O1-nhwc", "lenet5", 50, 5, with(o1, {"model.layout=nhwc"})),
          frame.lockstep("lstm-O1", "charlm_lstm", 20, 3, o1),
          frame.lockstep("transformer-O2", "charlm_transformer", 20, 3, with(o2, dropout))};
}

struct Section {
  const char* name;      ///< as --section takes it: "verbs"
  const char* question;  ///< what it answers
  bool first;            ///< one of the first checks on a device
  int seconds;           ///< after which one of its processes is killed
  Commands (*commands)(const Frame& frame);
};

template <const char* Name>
Commands suite(const Frame& frame) {
  return {frame.suite(Name)};
}
constexpr char device_suite[] = "device", large[] = "large", counts[] = "counts", products[] = "products",
               verbs[] = "verbs", tiles[] = "tiles";

constexpr Section sections[] = {
    {"device", "what was measured on", true, 300, &suite<device_suite>},
    {"tests", "do the test programs that want a GPU pass", true, 1800, &test_programs},
    {"probes", "does the tensor core compute what the table says", true, 1200, &probes},
    {"large", "do products and a convolution of many large tiles give the emulator's bits", true, 900,
     &suite<large>},
    {"sanitizer", "does compute-sanitizer find errors of memory, barriers or races", true, 1800, &sanitizers},
    {"capture", "does a step that is replayed as a graph have the bits of one that is not", true, 600,
     &graphs},
    {"counts", "do CUB's counts, ours and scattered rows agree", true, 600, &suite<counts>},
    {"products", "does mma.sync give the emulator's bits on data that tell tensor cores apart", true, 900,
     &suite<products>},
    {"profile", "what does our own product of 8192 cubed reach", true, 600, &profile},
    {"verbs", "does every verb give the emulated back end's bits", false, 1800, &suite<verbs>},
    {"tiles", "does every tile that products and convolutions can be cut into give those bits", false, 1800,
     &suite<tiles>},
    {"training", "does training give the emulated run's bits at every step", false, 3600, &trainings},
    {"times", "how fast are products and the tutorials' steps, and what do they hold in memory", false, 3600,
     [](const Frame& frame) {
       return benchmark(frame, frame.given.rehearse ? "product|O2/" : ".", "times.json");
     }},
};

std::string section_names() {
  std::string names;
  for (const Section& section : sections) names += (names.empty() ? "" : ", ") + std::string(section.name);
  return names;
}

std::vector<Section> chosen(const Given& given) {
  for (const std::string& name : given.sections)
    if (std::ranges::none_of(sections, [&](const Section& one) { return one.name == name; }))
      throw CommandError(ExitCode::usage,
                         fmt::format("--section '{}': expected one of {}", name, section_names()));
  std::vector<Section> all;
  for (const Section& section : sections)
    if (given.sections.empty() ? !given.first || section.first
                               : std::ranges::find(given.sections, section.name) != given.sections.end())
      all.push_back(section);
  return all;
}

/// The output of a process: a file, or our own output.
class Log {
 public:
  explicit Log(const fs::path& file) {
    if (file.empty()) return;
    make_folders(file.parent_path());
    descriptor_ = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor_ < 0) throw CommandError(ExitCode::run_failed, "cannot write " + file.string());
  }
  ~Log() {
    if (descriptor_ != STDOUT_FILENO) close(descriptor_);
  }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = STDOUT_FILENO;
};

struct Ended {
  int status = 0;       ///< the exit code, or 128 + signal
  bool killed = false;  ///< by us, after its time
};

/// Runs the command, which writes to `output`, a descriptor. Stops it with us.
Ended run(const Command& command, int seconds, int output) {
  using Clock = std::chrono::steady_clock;
  experiments::ChildProcess child(command.program, command.arguments, output);
  Ended ended;
  const auto limit = Clock::now() + std::chrono::seconds(seconds);
  std::optional<Clock::time_point> patience;
  for (;;) {
    if (const std::optional<int> status = child.poll()) {
      ended.status = *status;
      return ended;
    }
    if (experiments::interrupted() && !patience) {
      child.stop();
      patience = Clock::now() + std::chrono::seconds(5);
    }
    ended.killed = ended.killed || (!patience && Clock::now() > limit);
    if (ended.killed || (patience && Clock::now() > *patience)) child.kill();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::string ending(const Ended& ended, int seconds) {
  if (ended.killed) return fmt::format("was killed after {} s", seconds);
  if (ended.status > 128)
    return fmt::format("ended with signal {} ({})", ended.status - 128, strsignal(ended.status - 128));
  return fmt::format("ended with exit code {}", ended.status);
}

/// "53 tests, 2 fail" as GoogleTest wrote it; empty: it wrote nothing.
std::string counted(const fs::path& file) {
  if (file.empty() || !fs::exists(file)) return {};
  const nlohmann::json json = parse_json(read_file(file));
  const int tests = json.at("tests"), failures = json.at("failures");
  return fmt::format("{} test{}, {} fail{}", tests, tests == 1 ? "" : "s", failures,
                     failures == 1 ? "s" : "");
}

std::set<fs::path> bundles_in(const fs::path& out) {
  std::set<fs::path> all;
  if (fs::exists(out / "bundles"))
    for (const auto& entry : fs::directory_iterator(out / "bundles")) all.insert(entry.path());
  return all;
}

/// What processes that did not pass came to.
struct Outcome {
  bool mismatch = false;  ///< a check failed
  bool broke = false;     ///< a process ended otherwise
};

/// Runs the section. Its claim holds if all of its processes pass.
analysis::Claim judge(const Section& section, const Frame& frame, analysis::Claim claim, Outcome& outcome) {
  std::string measured;
  int ran = 0, failed = 0;
  const auto add = [&](const Command& command, const std::string& what) {
    measured += fmt::format("{}{}{}", measured.empty() ? "" : "; ",
                            command.name.empty() ? "" : command.name + ": ", what);
  };
  const std::set<fs::path> before = bundles_in(frame.common.out);
  for (const Command& command : section.commands(frame)) {
    if (experiments::interrupted()) break;
    if (command.program.empty()) {
      add(command, "not here");
      continue;
    }
    const int seconds = frame.given.seconds > 0 ? frame.given.seconds : section.seconds;
    fs::remove(command.counts);
    const fs::path log =
        command.name.empty() ? fs::path() : frame.common.out / "logs" / (command.name + ".log");
    Log file(log);
    const Ended ended = run(command, seconds, file.descriptor());
    if (ended.status == static_cast<int>(ExitCode::unavailable) && !ended.killed) {
      add(command, "no device");
      continue;
    }
    ++ran;
    const bool passed = ended.status == 0 && !ended.killed;
    const bool mismatch = !ended.killed && (ended.status == command.failing || ended.status == 5);
    if (!passed) ++failed;
    if (!passed && !log.empty()) claim.notes.push_back("log: " + log.string());
    outcome.mismatch = outcome.mismatch || mismatch;
    outcome.broke = outcome.broke || (!passed && !mismatch);
    const std::string count = counted(command.counts);
    add(command, !count.empty() ? count : passed ? "passes" : mismatch ? "fails" : ending(ended, seconds));
  }
  claim.measured = measured.empty() ? "not in a rehearsal" : measured;
  constexpr std::size_t most = 5;
  for (const fs::path& bundle : bundles_in(frame.common.out))
    if (!before.contains(bundle) && claim.notes.size() < most)
      claim.notes.push_back("bundle: " + bundle.string());
  if (ran > 0)
    claim.verdict = failed > 0 ? Verdict::fails : frame.given.rehearse ? Verdict::rehearsed : Verdict::holds;
  return claim;
}

/// Letters and spaces, the same on every machine.
std::string made_up_text(int characters) {
  std::string text;
  std::uint32_t state = 1;
  while (text.size() < static_cast<std::size_t>(characters)) {
    state = state * 1664525U + 1013904223U;
    text += (state >> 28) < 3 ? ' ' : static_cast<char>('a' + (state >> 16) % 26);
  }
  return text;
}

ExitCode accept(const CommonOptions& common, const Given& given) {
  const std::vector<Section> all = chosen(given);
  const Frame frame{common, given};
  const engine::CudaStatus status = engine::cuda_status();
  if (status.devices.empty())
    throw CommandError(ExitCode::unavailable, fmt::format("no GPU to accept: {} (build/tests/on_ptx COMMAND "
                                                          "--rehearse runs the kernels on the CPU instead)",
                                                          status.reason));
  experiments::announce_output(common);
  experiments::catch_interrupts();
  make_folders(common.out);
  fs::remove_all(common.out / "bundles");  // left by an earlier run
  write_file_atomically(common.out / "text.txt", made_up_text(given.rehearse ? 2000 : 400000));
  const std::string question =
      "does this GPU train with the emulator's bits, how fast, and in how much memory?";
  const std::string mark = given.rehearse ? "[rehearsal, no GPU] " : "";
  const auto say = [&](const std::string& text) {
    fmt::print("{}{}\n", mark, text);
    std::fflush(stdout);
  };
  std::vector<analysis::Claim> claims;
  for (const Section& section : all)
    claims.push_back(
        {.claim = fmt::format("{}: {}", section.name, section.question), .criterion = "all pass"});
  write_claims(common, question, claims);
  Outcome outcome;
  for (std::size_t i = 0; i < all.size(); ++i) {
    say(fmt::format("section {}: {}", all[i].name, all[i].question));
    const auto start = std::chrono::steady_clock::now();
    analysis::Claim claim = judge(all[i], frame, claims[i], outcome);
    if (experiments::interrupted()) return ExitCode::interrupted;
    claims[i] = std::move(claim);
    write_claims(common, question, claims);
    say(fmt::format("{:<12} {}: {} ({:.1f} s)", verdict_text(claims[i]), all[i].name, claims[i].measured,
                    std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()));
    for (const std::string& note : claims[i].notes) say("  " + note);
  }
  say(fmt::format("{}; see {}", analysis::claims_count(claims),
                  (common.out / experiments::claims_file).string()));
  if (outcome.mismatch) return ExitCode::mismatch;
  if (outcome.broke) return ExitCode::run_failed;
  const bool none = std::ranges::all_of(
      claims, [](const analysis::Claim& claim) { return claim.verdict == Verdict::not_run; });
  return none ? ExitCode::unavailable : ExitCode::ok;
}

/// What a process of a section does, and who runs a failure again.
ExitCode run_suites(const CommonOptions& common, const Given& given) {
  Settings settings{.side = given.rehearse ? experiments::open_rehearsal() : experiments::open_gpu(),
                    .threads = common.threads,
                    .seed = static_cast<std::uint64_t>(common.seed.value_or(1)),
                    .quick = given.quick,
                    .out = common.out};
  BackEnds back_ends;
  auto* const bundles = new BundleListener(settings);  // GoogleTest owns it
  register_suites(settings, back_ends, *bundles);
  testing::UnitTest::GetInstance()->listeners().Append(bundles);
  const bool passed = RUN_ALL_TESTS() == 0;
  testing::UnitTest::GetInstance()->listeners().Release(bundles);
  delete bundles;
  return passed ? ExitCode::ok : ExitCode::mismatch;
}

}  // namespace
}  // namespace fp16lab::device

int main(int argc, char** argv) {
  using namespace fp16lab::device;
  // Options of GoogleTest ask for suites in this very process.
  const bool is_suite =
      std::any_of(argv + 1, argv + argc, [](std::string_view one) { return one.starts_with("--gtest_"); });
  if (is_suite) testing::InitGoogleTest(&argc, argv);
  Given given;
  return fp16lab::experiments::experiment_main(
      argc, argv,
      {.name = "exp_device_acceptance",
       .question = "Does this GPU train with the bits of the emulator, how fast, and in how much memory?",
       .more = " It runs its sections in the order of a first contact, each in processes of its own: one "
               "that crashes, hangs or loses the device ends, and the next one runs. A test that fails "
               "leaves OUT/bundles/NAME, which says how to run it again; other programs leave OUT/logs. "
               "Exit 5 where a check fails, 1 where a process ends otherwise, 3 without a GPU.",
       .examples = "{} --first --quick\n"
                   "{} -o reports/device/h200\n"
                   "{} --section verbs --section training\n"
                   "{} --gtest_filter='verbs.gemm/*'",
       .out = "results/exp_device_acceptance",
       .seed = true,
       .device = true,
       .declare = [&](fp16lab::experiments::Options& options) -> fp16lab::experiments::Command::Run {
         options.add("--section", given.sections, "Only this section (repeatable): " + section_names())
             .type("NAME")
             .repeatable();
         options.flag("--first", given.first, "only the first checks: device to profile");
         options.flag("--quick", given.quick, "fewer sizes, steps and small tensors");
         options
             .add("--timeout", given.seconds,
                  "Kill a process after so many seconds (default: by section, 300 to 3600)")
             .type("SECONDS")
             .at_least(1);
         options.flag("--rehearse", given.rehearse,
                      "tiny sizes, on the PTX machine in a GPU's place (build/tests/on_ptx; tests this "
                      "command; its times are meaningless)");
         return [&](const CommonOptions& common) {
           return is_suite ? run_suites(common, given) : accept(common, given);
         };
       }});
}
