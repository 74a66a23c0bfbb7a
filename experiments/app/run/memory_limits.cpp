#include "experiments/app/run/memory_limits.hpp"
#include "numerics/text/own_command.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <tuple>

#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

namespace fs = std::filesystem;

/// Files of the kernel's, which are short.
std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  return text.str();
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::optional<std::uint64_t> number_of(std::string_view text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || last != end) return std::nullopt;
  return number;
}

/// A file that is one number; nothing for "max", and for what v1 has in its place: the greatest of pages.
std::optional<std::uint64_t> number_in(const fs::path& path) {
  constexpr std::uint64_t no_limit = std::uint64_t{1} << 62;
  const std::vector<std::string> words = words_of(text_of(path));
  const std::optional<std::uint64_t> number = words.empty() ? std::nullopt : number_of(words.front());
  return number && *number < no_limit ? number : std::nullopt;
}

/// The number after the word `name` at the beginning of a line: "MemFree:  12 kB", "inactive_file 12".
std::optional<std::uint64_t> entry(const std::string& text, std::string_view name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> words = words_of(line);
    if (words.size() < 2 || words[0] != name) continue;
    const std::optional<std::uint64_t> number = number_of(words[1]);
    if (!number || words.size() < 3 || words[2] != "kB") return number;
    return *number > std::numeric_limits<std::uint64_t>::max() / 1024 ? std::nullopt
                                                                      : std::optional(*number * 1024);
  }
  return std::nullopt;
}

std::uint64_t minus(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; }

/// Names of the files of a control group in the two versions.
struct GroupFiles {
  const char *most, *used, *most_swapped, *active, *inactive;
};
constexpr GroupFiles version_2{"memory.max", "memory.current", "memory.swap.max", "active_file",
                               "inactive_file"};
constexpr GroupFiles version_1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                               "memory.memsw.limit_in_bytes", "total_active_file", "total_inactive_file"};

/// A mount of control groups: which group of the hierarchy its folder is.
struct Mount {
  fs::path folder, group;
};

/// "ID PARENT MAJOR:MINOR ROOT FOLDER OPTIONS ... - TYPE SOURCE SUPER-OPTIONS" (proc_pid_mountinfo(5)).
std::optional<Mount> mount_of(const std::string& mounts, std::string_view type, std::string_view option) {
  std::istringstream lines(mounts);
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> words = words_of(line);
    const auto mark = std::ranges::find(words, "-");
    if (words.size() < 6 || words.end() - mark < 4 || mark[1] != type) continue;
    const std::string options = "," + mark[3] + ",";
    if (option.empty() || options.find("," + std::string(option) + ",") != std::string::npos)
      return Mount{.folder = words[4], .group = words[3]};
  }
  return std::nullopt;
}

/// Of /proc/self/cgroup, "NUMBER:CONTROLLERS:PATH" a line: the path where the controllers are `controller`.
std::optional<fs::path> group_of(const std::string& groups, std::string_view controller) {
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers.find("," + std::string(controller) + ",") != std::string::npos)
      return line.substr(second + 1);
  }
  return std::nullopt;
}

/// The tightest of a group and those above it up to the mount.
void add_groups(std::vector<MemoryLimit>& limits, const fs::path& root, const Mount& mount,
                const fs::path& group, const GroupFiles& files, std::uint64_t free_swap) {
  // In a container the group may be named from outside, and then the mount's folder is the one.
  fs::path below = group.lexically_relative(mount.group);
  if (below.empty() || *below.begin() == "..") below = ".";
  for (fs::path at = below.lexically_normal();; at = at.parent_path()) {
    const fs::path folder = root / mount.folder.relative_path() / at;
    if (const std::optional<std::uint64_t> most = number_in(folder / files.most)) {
      const std::string statistics = text_of(folder / "memory.stat");
      const std::uint64_t cache =
          entry(statistics, files.active).value_or(0) + entry(statistics, files.inactive).value_or(0);
      std::uint64_t swap = free_swap;
      if (const std::optional<std::uint64_t> swapped = number_in(folder / files.most_swapped))
        swap = std::min(swap, &files == &version_2
                                  ? minus(*swapped, number_in(folder / "memory.swap.current").value_or(0))
                                  : minus(*swapped, *most));  // v1 counts memory and swap together
      const std::uint64_t used = number_in(folder / files.used).value_or(0);
      limits.push_back(
          {.left = minus(*most, minus(used, cache)) + swap,
           .whose = fmt::format("the control group {} ({})",
                                printable((mount.group / at).lexically_normal().string()), files.most)});
    }
    if (at.empty() || at == ".") return;
  }
}

/// The soft limit in /proc/self/limits: "NAME  SOFT  HARD  bytes", where names are several words.
std::optional<std::uint64_t> process_limit(const std::string& limits, std::string_view name) {
  std::istringstream lines(limits);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    const std::vector<std::string> words = words_of(line.substr(name.size()));
    return words.empty() ? std::nullopt : number_of(words.front());  // nothing for "unlimited"
  }
  return std::nullopt;
}

std::string gigabytes(std::uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  return value < 1e9 ? fmt::format("{:.0f} MB", value * 1e-6) : fmt::format("{:.1f} GB", value * 1e-9);
}

}  // namespace

std::vector<MemoryLimit> memory_limits(const std::filesystem::path& root) {
  std::vector<MemoryLimit> limits;
  const fs::path own = root / "proc/self";
  const std::string machine = text_of(root / "proc/meminfo");
  const std::uint64_t free_swap = entry(machine, "SwapFree:").value_or(0);
  if (const auto available = entry(machine, "MemAvailable:"))
    limits.push_back({.left = *available + free_swap, .whose = "this machine (MemAvailable and SwapFree)"});
  const auto most_promised = entry(machine, "CommitLimit:"), promised = entry(machine, "Committed_AS:");
  if (number_in(root / "proc/sys/vm/overcommit_memory") == 2 && most_promised && promised)
    limits.push_back({.left = minus(*most_promised, *promised), .whose = "this machine (CommitLimit)"});

  const std::string of_process = text_of(own / "limits"), status = text_of(own / "status");
  for (const auto& [name, used, whose] :
       {std::tuple{"Max address space", "VmSize:", "this process (RLIMIT_AS, ulimit -v)"},
        {"Max data size", "VmData:", "this process (RLIMIT_DATA, ulimit -d)"}})
    if (const auto most = process_limit(of_process, name))
      limits.push_back({.left = minus(*most, entry(status, used).value_or(0)), .whose = whose});

  const std::string mounts = text_of(own / "mountinfo"), groups = text_of(own / "cgroup");
  if (const auto group = group_of(groups, ""))
    if (const auto mount = mount_of(mounts, "cgroup2", ""))
      add_groups(limits, root, *mount, *group, version_2, free_swap);
  if (const auto group = group_of(groups, "memory"))
    if (const auto mount = mount_of(mounts, "cgroup", "memory"))
      add_groups(limits, root, *mount, *group, version_1, free_swap);
  std::ranges::stable_sort(limits, {}, &MemoryLimit::left);
  return limits;
}

std::string memory_warning(std::uint64_t need, std::size_t runs, const std::vector<MemoryLimit>& limits) {
  if (limits.empty() || need <= limits.front().left) return "";
  return fmt::format(
      "{} {} of memory for tensors, and {} leaves {}: the kernel may end the run, or it may run out of "
      "memory; a smaller train.batch_size or model{} needs less ({} shows how much)",
      runs == 1 ? "a step needs" : fmt::format("a step of {} concurrent runs needs", runs), gigabytes(need),
      limits.front().whose, gigabytes(limits.front().left), runs == 1 ? "" : ", or fewer --jobs,",
      own_command({"model"}));
}

}  // namespace fp16lab::experiments
