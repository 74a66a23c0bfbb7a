// exp_device_acceptance: does this GPU train with the bits of the emulator, how fast, and in how much memory?
//
// One command on a machine with a GPU judges the CUDA back end: sections run one after the other, a section
// that fails is reported and the others go on, and every target of the project gets a measured value and a
// verdict. All targets are written down before the first section, and the report anew after every section, so
// that an interrupt leaves what was measured.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/app/command_line.hpp"
#include "experiments/app/process.hpp"
#include "experiments/app/progress.hpp"
#include "experiments/device_acceptance/report.hpp"
#include "experiments/device_acceptance/torch_times.hpp"
#include "experiments/study/study.hpp"

namespace fp16lab::experiments {
namespace {

using acceptance::Section;
using acceptance::SectionReport;

struct Given {
  bool rehearse = false, quick = false;
  std::vector<std::string> sections;
  std::string torch;
};

std::string section_names() {
  std::string names;
  for (const Section& section : acceptance::all_sections())
    names += (names.empty() ? "" : ", ") + std::string(section.name);
  return names;
}

std::vector<Section> chosen(const std::vector<std::string>& names) {
  std::vector<Section> sections;
  for (const std::string& name : names)
    if (std::ranges::none_of(acceptance::all_sections(),
                             [&](const Section& one) { return one.name == name; }))
      throw CommandError(ExitCode::usage,
                         fmt::format("--section '{}': expected one of {}", name, section_names()));
  for (const Section& section : acceptance::all_sections())
    if (names.empty() || std::ranges::find(names, section.name) != names.end()) sections.push_back(section);
  return sections;
}

std::string typed(const std::vector<std::string>& argv) {
  std::string text;
  for (const std::string& word : argv) text += (text.empty() ? "" : " ") + word;
  return text;
}

ExitCode run_exp_device_acceptance(const CommonOptions& common, const Given& given) {
  const std::vector<Section> sections = chosen(given.sections);
  acceptance::Settings settings{.side = given.rehearse ? open_rehearsal("auto") : open_gpu(),
                                .threads = common.threads,
                                .seed = static_cast<std::uint64_t>(common.seed.value_or(1)),
                                .quick = given.quick,
                                .out = common.out,
                                .torch = given.torch,
                                .command = typed(common.argv),
                                .progress = {}};
  if (!settings.torch.empty()) {
    try {
      acceptance::read_torch_times(settings.torch);  // before minutes are spent
    } catch (const std::exception& error) {
      throw CommandError(ExitCode::usage, error.what());
    }
  }
  std::filesystem::create_directories(settings.out);
  catch_interrupts();
  Progress progress(common.quiet);
  const std::string mark = line_mark(settings.side);
  settings.progress = [&](const std::string& what) {
    if (progress.due()) progress.show(fmt::format("{}exp_device_acceptance: {}", mark, what));
  };

  const std::string question =
      "does this GPU train with the emulator's bits, how fast, and in how much memory?";
  const Printing printing{.mark = mark};
  print_question(question, fmt::format("device: {}", settings.side.description), printing);
  std::vector<SectionReport> reports;
  const auto write = [&] { write_claims(common, question, claims_of(settings, sections, reports)); };
  write();
  for (const Section& section : sections) {
    if (interrupted()) break;
    progress.message(fmt::format("{}section {}: {}", mark, section.name, section.question));
    reports.push_back(acceptance::run_section(section, settings));
    acceptance::write_report(settings, reports);
    write();
    fmt::print("{}", marked(mark, acceptance::text_of(reports.back())));
    std::fflush(stdout);
  }
  fmt::print("{}", marked(mark, fmt::format("{}; see {}\n", acceptance::outcome_text(reports),
                                            (settings.out / "acceptance.md").string())));
  if (reports.size() < sections.size()) return ExitCode::interrupted;
  return acceptance::exit_code_of(reports);
}

}  // namespace
}  // namespace fp16lab::experiments

int main(int argc, char** argv) {
  using namespace fp16lab::experiments;
  Given given;
  return experiment_main(
      argc, argv,
      {.name = "exp_device_acceptance",
       .description = "Does this GPU train with the bits of the emulator, how fast, and in how much memory? "
                      "Exit 5 where "
                      "bits differ,\n"
                      "1 where a section cannot run, 3 without a GPU. A goal of speed or memory that is not "
                      "met is BEHIND; "
                      "it "
                      "decides nothing.",
       .examples = "  exp_device_acceptance -o reports/device/h200 --torch torch.json\n"
                   "  exp_device_acceptance --section verbs --section training --quick",
       .declare =
           [&](Options& options) {
             options
                 .add("--section", given.sections,
                      "Only this section (repeatable): device, probes, products, verbs, tiles, training, "
                      "gemm, "
                      "steps, histograms, memory")
                 .type("NAME")
                 .repeatable();
             options.add("--torch", given.torch, "What experiments/bench/torch_amp.py measured on this card")
                 .type("FILE");
             options.flag("--quick", given.quick, "fewer sizes, steps and repetitions");
             options.flag("--rehearse", given.rehearse,
                          "no GPU: execute the CUDA kernels on the CPU at tiny sizes (tests this command; "
                          "its times are "
                          "meaningless)");
             return [&](const CommonOptions& common) { return run_exp_device_acceptance(common, given); };
           }},
      {.out = "results/exp_device_acceptance", .seed = true});
}
