#include "backends/slurm/nodes.h"

#include "backends/batch/split.h"

#include <charconv>
#include <set>

namespace dtrain::slurm {
namespace {

double amount_of(std::string_view text) {
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// "gpu:a100:4(S:0-1),gpu:2" is 6.
int gpus_of(std::string_view gres) {
  int sum = 0;
  for (auto each : batch::split(gres, ',')) {
    if (each.starts_with("gpu:")) {
      each = each.substr(0, each.find('('));
      sum += static_cast<int>(amount_of(each.substr(each.rfind(':') + 1)));
    }
  }
  return sum;
}

} // namespace

std::vector<NodeStatus> read_nodes(std::string_view text) {
  std::vector<NodeStatus> nodes;
  std::set<std::string_view> known;
  for (const auto line : batch::split(text, '\n')) {
    std::vector<std::string_view> words;
    for (const auto word : batch::split(line, ' ')) {
      if (!word.empty()) {
        words.push_back(word);
      }
    }
    constexpr std::size_t k_fields = 8;
    if (words.size() < k_fields || !known.insert(words[0]).second) {
      continue;
    }
    NodeStatus& node = nodes.emplace_back();
    node.name = words[0];
    node.status = words[1];
    node.address = words[2];
    const auto cpus = batch::split(words[3], '/'); // allocated/idle/other/total
    node.cpus = amount_of(cpus.back());
    node.cpus_used = amount_of(cpus.front());
    constexpr std::int64_t k_mebibyte = 1 << 20;
    node.memory = static_cast<std::int64_t>(amount_of(words[4])) * k_mebibyte;
    node.memory_used = static_cast<std::int64_t>(amount_of(words[5])) * k_mebibyte;
    node.gpus = gpus_of(words[6]);
    node.gpus_requested = gpus_of(words[7]);
  }
  return nodes;
}

} // namespace dtrain::slurm
