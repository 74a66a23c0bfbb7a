#include "experiments/device_acceptance/child.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "experiments/app/process.hpp"
#include "experiments/device_acceptance/bundle.hpp"
#include "experiments/device_acceptance/case_section.hpp"
#include "experiments/device_acceptance/greeting.hpp"
#include "experiments/device_acceptance/journal.hpp"
#include "experiments/device_acceptance/reproduce.hpp"
#include "experiments/device_acceptance/side_json.hpp"
#include "experiments/device_acceptance/watched.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/text/nesting.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string dumped(const Json& json) { return json.dump(-1, ' ', true, Json::error_handler_t::replace); }

Json json_of(const SectionReport& report) {
  Json tables = Json::array(), claims = Json::array();
  for (const Table& table : report.result.tables)
    tables.push_back({{"caption", table.caption}, {"columns", table.columns}, {"rows", table.rows}});
  for (const Claim& claim : report.result.claims)
    claims.push_back(
        {{"measured", claim.measured}, {"verdict", static_cast<int>(claim.verdict)}, {"notes", claim.notes}});
  return {{"tables", tables},
          {"notes", report.result.notes},
          {"claims", claims},
          {"failure", report.failure},
          {"seconds", report.seconds}};
}

/// Goals become claims again by what the child measured of them.
SectionReport report_of(const Json& json, const Section& section, const Settings& settings) {
  SectionReport report = not_run(section, settings);
  for (const Json& table : json.at("tables"))
    report.result.tables.push_back(
        {.caption = table.at("caption"), .columns = table.at("columns"), .rows = table.at("rows")});
  report.result.notes = json.at("notes").get<std::vector<std::string>>();
  const Json& claims = json.at("claims");
  if (claims.size() != report.result.claims.size())
    throw std::runtime_error(fmt::format("section {} has {} goals and {} claims", section.name,
                                         report.result.claims.size(), claims.size()));
  for (std::size_t i = 0; i < claims.size(); ++i) {
    Claim& claim = report.result.claims[i];
    claim.measured = claims[i].at("measured");
    claim.verdict = static_cast<Verdict>(claims[i].at("verdict").get<int>());
    claim.notes = claims[i].at("notes").get<std::vector<std::string>>();
  }
  report.failure = json.at("failure");
  report.seconds = json.at("seconds");
  return report;
}

/// A folder for what goes between the processes; nothing is written into --out before there is a device.
class Exchange {
 public:
  Exchange() {
    std::string name = (fs::temp_directory_path() / "fp16lab-acceptance-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a folder: " + name);
    folder_ = name;
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  fs::path task() const { return folder_ / "task.json"; }
  fs::path journal() const { return folder_ / "journal.jsonl"; }

  /// Starts this very program on the task. Nothing where the child gave no answer.
  std::optional<Json> ask(const Settings& settings, const Json& question, const Relay& relay, Ended& ended) {
    write_file_atomically(task(), dumped({{"task", question}}));
    std::vector<std::string> arguments = settings.arguments;
    if (std::ranges::find(arguments, "--quiet") == arguments.end()) arguments.emplace_back("--quiet");
    arguments.insert(arguments.end(), {"--child", task().string()});
    ended = run_watched(fs::read_symlink("/proc/self/exe"), arguments, settings.silence,
                        [&](const std::string& line) {
                          if (line.starts_with(progress_mark))
                            relay.progress(line.substr(progress_mark.size()));
                          else
                            relay.line(line);
                        });
    const Json answer = parse_json(read_file(task()));
    return answer.contains("answer") ? std::optional(answer["answer"]) : std::nullopt;
  }

 private:
  fs::path folder_;
};

/// What is said of a process that gave no answer.
std::string death(const Ended& ended, const Settings& settings) {
  std::string words = ended.last_words;
  for (std::size_t at = 0; (at = words.find(progress_mark, at)) != words.npos;)
    words.erase(at, progress_mark.size());
  return fmt::format("the process ended with {}{}{}", ended.how(settings.silence),
                     words.empty() ? "" : "; its last words: ", words);
}

const VerbCase& case_called(const CaseList& list, const std::string& key) {
  const auto found = std::ranges::find(list.cases, key, &key_of);
  if (found == list.cases.end()) throw std::runtime_error("no case is called " + key);
  return *found;
}

/// Writes down that the journal's open case ended its process.
void end_case(const CaseList& list, const Settings& settings, Journal& journal, const std::string& reason) {
  const VerbCase& one = case_called(list, *journal.unfinished());
  journal.end(key_of(one), {.verb = one.verb,
                            .cases = 1,
                            .notes = {one.name + ": " + reason},
                            .failed = true,
                            .bundles = {write_case_bundle(settings, one, list.size, {}, reason).string()}});
}

/// A verb whose cases cost so many processes is left: its other cases would cost as much.
constexpr int most_processes_of_a_verb = 3;

/// Writes down that the other cases of the verb do not run.
void leave_verb(const CaseList& list, const std::string& verb, Journal& journal) {
  for (const VerbCase& one : list.cases)
    if (one.verb == verb && journal.ended(key_of(one)) == nullptr)
      journal.end(key_of(one), {.verb = one.verb,
                                .cases = 1,
                                .notes = {fmt::format("{}: not run, {} cases of this verb cost their process",
                                                      one.name, most_processes_of_a_verb)},
                                .failed = true});
}

bool has_mismatch(const SectionReport& report) {
  return !report.failure.empty() || analysis::any_mismatch(report.result.claims);
}

}  // namespace

DeviceSide open_device(const Settings& settings, const Relay& relay) {
  Exchange exchange;
  Ended ended;
  const std::optional<Json> answer = exchange.ask(settings, {{"open", true}}, relay, ended);
  if (!answer)
    throw CommandError(ended.stopped ? ExitCode::interrupted : ExitCode::run_failed,
                       "opening the device: " + death(ended, settings));
  if (answer->contains("unavailable"))
    throw CommandError(ExitCode::unavailable, answer->at("unavailable").get<std::string>());
  return side_of(answer->at("side"));
}

SectionReport run_in_child(const Section& section, const Settings& settings, const Relay& relay) {
  const auto start = std::chrono::steady_clock::now();
  Exchange exchange;
  Settings own = settings;
  own.section = section.name;
  constexpr int most_processes = 60, most_silent = 3;  // silence costs the more
  std::optional<Json> answer;
  std::string failure;
  std::map<std::string, int> processes_of_verb;
  int silent = 0;
  for (int processes = 1; !answer && failure.empty(); ++processes) {
    const std::size_t before = Journal(exchange.journal()).ended_cases().size();
    Ended ended;
    answer = exchange.ask(own,
                          {{"section", section.name},
                           {"side", json_of(own.side)},
                           {"command", own.command},
                           {"journal", exchange.journal().string()}},
                          relay, ended);
    if (answer) break;
    const std::string reason = death(ended, own);
    Journal journal(exchange.journal());
    if (section.cases != nullptr && !ended.stopped) {
      const CaseList list = section.cases(own);
      if (journal.unfinished()) end_case(list, own, journal, reason);
      if (journal.ended_cases().size() > before) {
        const std::string& verb = journal.ended(journal.last_ended())->verb;
        if (++processes_of_verb[verb] == most_processes_of_a_verb) leave_verb(list, verb, journal);
      }
    }
    silent += ended.silent ? 1 : 0;
    if (ended.stopped || journal.ended_cases().size() == before)
      failure = reason;
    else if (processes == most_processes || silent == most_silent)
      failure = fmt::format("given up after {} processes; {}", processes, reason);
  }
  SectionReport report = answer ? report_of(*answer, section, own) : not_run(section, own);
  if (!failure.empty()) {
    report.failure = failure;
    const Journal journal(exchange.journal());
    std::vector<VerbRow> rows;
    for (const auto& [key, row] : journal.ended_cases()) add_row(rows, row);
    if (!rows.empty()) report.result = result_of(rows, "verb", std::move(report.result.claims));
  }
  const bool has_bundle = std::ranges::any_of(
      report.result.notes, [](const std::string& note) { return note.starts_with("bundle: "); });
  if (has_mismatch(report) && !has_bundle && !interrupted())
    report.result.notes.push_back("bundle: " + write_section_bundle(own, report).string());
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

ExitCode reproduce_in_child(const Settings& settings, const fs::path& folder, const Relay& relay) {
  const Bundle bundle = read_bundle(folder);  // what is wrong with it is said before a device is opened
  if (bundle.key.empty()) {
    const Section& section = section_called(bundle.section);
    Settings own = settings_of_bundle(settings, bundle);
    own.side = open_device(own, relay);
    const SectionReport report = run_in_child(section, own, relay);
    relay.line(text_of(report));
    relay.line(has_mismatch(report) ? "the section still fails here" : "the section does not fail here");
    return has_mismatch(report) ? ExitCode::mismatch : ExitCode::ok;
  }
  Exchange exchange;
  Ended ended;
  const auto answer = exchange.ask(settings, {{"reproduce", fs::absolute(folder).string()}}, relay, ended);
  if (ended.stopped) return ExitCode::interrupted;
  if (!answer) {
    relay.line(death(ended, settings));
    return ExitCode::run_failed;
  }
  if (answer->contains("unavailable"))
    throw CommandError(ExitCode::unavailable, answer->at("unavailable").get<std::string>());
  return static_cast<ExitCode>(answer->at("exit_code").get<int>());
}

ExitCode answer_child(const fs::path& file, const Settings& given) {
  const Json task = parse_json(read_file(file)).at("task");
  Settings settings = given;
  settings.progress = [](const std::string& what) {
    fmt::print("{}{}\n", progress_mark, what);
    std::fflush(stdout);
  };
  Json answer;
  try {
    if (task.contains("open")) {
      answer["side"] = json_of(greet(settings));
    } else if (task.contains("reproduce")) {
      answer["exit_code"] =
          static_cast<int>(reproduce(settings, fs::path(task["reproduce"].get<std::string>())));
    } else {
      settings.side = side_of(task.at("side"));
      make_folders(settings.out);
      settings.journal = task.value("journal", "");
      settings.command = task.value("command", settings.command);
      answer = json_of(run_section(section_called(task.at("section").get<std::string>()), settings));
    }
  } catch (const CommandError& error) {
    if (error.code != ExitCode::unavailable) throw;
    answer["unavailable"] = error.what();
  }
  write_file_atomically(file, dumped({{"answer", answer}}));
  return ExitCode::ok;
}

std::vector<std::string> direct_arguments(const Settings& settings, const std::string& section,
                                          const fs::path& file) {
  write_file_atomically(file, dumped({{"task", {{"section", section}, {"side", json_of(settings.side)}}}}));
  std::vector<std::string> arguments{"--quick",
                                     "--threads",
                                     fmt::format("{}", settings.threads),
                                     "--seed",
                                     fmt::format("{}", settings.seed),
                                     "-o",
                                     (settings.out / "direct").string(),
                                     "--child",
                                     file.string()};
  if (settings.rehearsal()) arguments.emplace_back("--rehearse");
  return arguments;
}

}  // namespace fp16lab::experiments::acceptance
