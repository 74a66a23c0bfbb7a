// exp_device_acceptance: does this GPU train with the bits of the emulator, how fast, and in how much memory?
//
// One command on a machine with a GPU judges the CUDA back end. It says what device it has, then runs
// sections one after the other, each in a process of its own; one that fails, crashes or hangs is reported
// and the others go on, and every target of the project gets a measured value and a verdict. All targets are
// written down before the first section, and the report anew after every section, so that an interrupt leaves
// what was measured. Every failure leaves a folder that reproduces it.
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
#include "experiments/device_acceptance/bundle.hpp"
#include "experiments/device_acceptance/child.hpp"
#include "experiments/device_acceptance/torch_times.hpp"
#include "experiments/study/study.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

using acceptance::Section;
using acceptance::SectionReport;

struct Given {
  bool rehearse = false, quick = false, first = false;
  std::vector<std::string> sections;
  std::string torch;
  std::filesystem::path reproduce, child;
  int silence = 1800;
};

std::string section_names() {
  std::string names;
  for (const Section& section : acceptance::all_sections())
    names += (names.empty() ? "" : ", ") + std::string(section.name);
  return names;
}

std::vector<Section> chosen(const Given& given) {
  const std::vector<std::string>& names = given.sections;
  std::vector<Section> sections;
  for (const std::string& name : names)
    if (std::ranges::none_of(acceptance::all_sections(),
                             [&](const Section& one) { return one.name == name; }))
      throw CommandError(ExitCode::usage,
                         fmt::format("--section '{}': expected one of {}", name, section_names()));
  for (const Section& section : acceptance::all_sections())
    if (names.empty() ? !given.first || section.first : std::ranges::find(names, section.name) != names.end())
      sections.push_back(section);
  return sections;
}

acceptance::Settings settings_of(const CommonOptions& common, const Given& given) {
  DeviceSide side;  // a child opens it
  side.rehearsal = given.rehearse;
  acceptance::Settings settings{.side = side,
                                .threads = common.threads,
                                .seed = static_cast<std::uint64_t>(common.seed.value_or(1)),
                                .quick = given.quick,
                                .out = common.out,
                                .torch = given.torch,
                                .command = shell_line(common.argv),
                                .arguments = {common.argv.begin() + 1, common.argv.end()},
                                .silence = static_cast<double>(given.silence),
                                .progress = {}};
  if (!settings.torch.empty()) {
    try {
      acceptance::read_torch_times(settings.torch);  // before minutes are spent
    } catch (const std::exception& error) {
      throw CommandError(ExitCode::usage, error.what());
    }
  }
  return settings;
}

/// Lines of stdout.
void print_line(const std::string& mark, const std::string& line) {
  fmt::print("{}", marked(mark, line.ends_with('\n') ? line : line + '\n'));
  std::fflush(stdout);
}

/// Where the first failures of a section can be had again.
void print_bundles(const std::string& mark, const SectionReport& report) {
  constexpr int most = 5;
  int bundles = 0;
  for (const std::string& note : report.result.notes)
    if (note.starts_with("bundle: ") && bundles++ < most) print_line(mark, "  " + note);
  if (bundles > most) print_line(mark, fmt::format("  and {} more bundles beside it", bundles - most));
}

ExitCode accept_device(const CommonOptions& common, acceptance::Settings settings,
                       const std::vector<Section>& sections) {
  Progress progress(common.quiet);
  const std::string mark = line_mark(settings.side);
  const auto show = [&](const std::string& what) {
    if (progress.due()) progress.show(fmt::format("{}exp_device_acceptance: {}", mark, what));
  };
  settings.side = acceptance::open_device(
      settings, {.progress = show, .line = [&](const std::string& line) { print_line(mark, line); }});
  make_folders(settings.out);
  remove_everything(acceptance::bundles_of(settings));  // of an earlier run

  const std::string question =
      "does this GPU train with the emulator's bits, how fast, and in how much memory?";
  print_question(question, fmt::format("device: {}", settings.side.description), {.mark = mark});
  std::vector<SectionReport> reports;
  const auto write = [&] { write_claims(common, question, claims_of(settings, sections, reports)); };
  write();
  const acceptance::Relay relay{.progress = show,
                                .line = [&](const std::string& line) { progress.message(mark + line); }};
  for (const Section& section : sections) {
    if (interrupted()) break;
    progress.message(fmt::format("{}section {}: {}", mark, section.name, section.question));
    SectionReport report = acceptance::run_in_child(section, settings, relay);
    if (interrupted()) break;
    reports.push_back(std::move(report));
    acceptance::write_report(settings, reports);
    write();
    print_line(mark, acceptance::text_of(reports.back()));
    print_bundles(mark, reports.back());
  }
  print_line(mark, fmt::format("{}; see {}", acceptance::outcome_text(reports),
                               (settings.out / "acceptance.md").string()));
  if (reports.size() < sections.size()) return ExitCode::interrupted;
  return acceptance::exit_code_of(reports);
}

ExitCode run_exp_device_acceptance(const CommonOptions& common, const Given& given) {
  const std::vector<Section> sections = chosen(given);
  const acceptance::Settings settings = settings_of(common, given);
  if (!given.child.empty()) return acceptance::answer_child(given.child, settings);
  catch_interrupts();
  if (given.reproduce.empty()) return accept_device(common, settings, sections);
  const std::string mark = line_mark(settings.side);
  const auto print = [&](const std::string& line) { print_line(mark, line); };
  return acceptance::reproduce_in_child(settings, given.reproduce,
                                        {.progress = [](const std::string&) {}, .line = print});
}

}  // namespace
}  // namespace fp16lab::experiments

int main(int argc, char** argv) {
  using namespace fp16lab::experiments;
  Given given;
  return experiment_main(
      argc, argv,
      {.name = "exp_device_acceptance",
       .description =
           "Does this GPU train with the bits of the emulator, how fast, and in how much memory? It says "
           "what\n"
           "device it has, then runs its sections, the ten first checks before what takes long, each in a\n"
           "process of its own: a crash, a hang or a lost device ends a case and not the command. Every "
           "failure\n"
           "leaves OUT/bundles/NAME. Exit 5 where bits differ, 1 where a section cannot run, 3 without a "
           "GPU.\n"
           "A goal of speed or memory that is not met is BEHIND; it decides nothing.",
       .examples = "  exp_device_acceptance -o reports/device/h200 --torch torch.json\n"
                   "  exp_device_acceptance --first --quick\n"
                   "  exp_device_acceptance --section verbs --section training --quick\n"
                   "  exp_device_acceptance --reproduce reports/device/h200/bundles/NAME",
       .declare =
           [&](Options& options) {
             options.add("--section", given.sections, "Only this section (repeatable): " + section_names())
                 .type("NAME")
                 .repeatable();
             options.flag("--first", given.first,
                          "only the ten first checks: device, tests, probes, large, sanitizer, capture, "
                          "counts, products, profile");
             options.add("--reproduce", given.reproduce, "Run the failure in this bundle again, nothing else")
                 .type("FOLDER");
             options.add("--torch", given.torch, "What experiments/bench/torch_amp.py measured on this card")
                 .type("FILE");
             options.flag("--quick", given.quick, "fewer sizes, steps and repetitions");
             options
                 .add("--silence", given.silence,
                      "Kill a section's process that says nothing for so many seconds (default: 1800)")
                 .type("SECONDS")
                 .at_least(1);
             options.flag("--rehearse", given.rehearse,
                          "tiny sizes, on the PTX machine in a GPU's place (build/tests/on_ptx; tests this "
                          "command; its times are meaningless)");
             options.add("--child", given.child, "").group("");
             return [&](const CommonOptions& common) { return run_exp_device_acceptance(common, given); };
           }},
      {.out = "results/exp_device_acceptance", .seed = true});
}
