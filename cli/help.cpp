#include "cli/help.h"

#include "cli/commands.h"
#include "cli/typed.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace dtrain {
namespace {

constexpr std::string_view k_program = "dtrain";

struct HelpOptions {
  std::vector<std::string> words;
};

CommandTable help_table(HelpOptions& options) {
  return {.name = "help",
          .summary = "Show help for a command",
          .description = "Shows help for a command, or lists all commands.",
          .examples = {"dtrain help submit"},
          .options = {{.flags = "COMMAND",
                       .target = &options.words,
                       .help = "The command",
                       .complete = Complete::command_name,
                       .positional = true}}};
}

int run_help(Context& context, const HelpOptions& options) {
  if (options.words.empty()) {
    print_overview(context.out);
  } else {
    print_help(context, options.words);
  }
  return 0;
}

struct Line {
  std::string_view heading;
  std::string_view name;
  std::string summary;
};

void print_lines(Stream& out, const std::vector<Line>& lines) {
  std::size_t width = 0;
  for (const auto& line : lines) {
    width = std::max(width, line.name.size());
  }
  std::string_view heading;
  for (const auto& line : lines) {
    if (line.heading != heading) {
      heading = line.heading;
      out.write(
          fmt::format("\n{}\n", styled(out.terminal(), Style::bold, fmt::format("{}:", heading))));
    }
    out.write(fmt::format("  {:<{}}  {}\n", line.name, width, line.summary));
  }
}

/// The group that a command of two words belongs to.
const CommandGroup* group_of(std::string_view command) {
  const auto& groups = command_groups();
  const auto found = std::find_if(groups.begin(), groups.end(), [&](const CommandGroup& group) {
    return group.name == command.substr(0, command.find(' '));
  });
  return found == groups.end() ? nullptr : &*found;
}

} // namespace

void print_overview(Stream& out) {
  out.write("Submit, watch and manage distributed training jobs.\n"
            "\nUsage: dtrain COMMAND [flags]\n");
  std::vector<Line> lines;
  for (const auto& entry : commands()) {
    if (entry.group.empty()) {
      continue;
    }
    const CommandGroup* group = group_of(entry.name);
    if (group == nullptr) {
      lines.push_back({entry.group, entry.name, entry.make().table.summary});
    } else if (lines.empty() || lines.back().name != group->name) {
      lines.push_back({entry.group, group->name, std::string(group->summary)});
    }
  }
  print_lines(out, lines);
  out.write("\n" + styled(out.terminal(), Style::bold, "Examples:") +
            "\n"
            "  dtrain submit --workers=3 --wait              # The bundled trainer\n"
            "  dtrain submit --workers=2 -- python train.py  # Your own program\n"
            "  dtrain logs -f NAME\n"
            "\nMore about a command: dtrain help COMMAND\n");
}

void print_help(Context& context, const std::vector<std::string>& words) {
  Stream& out = context.out;
  const CommandGroup* group = words.size() == 1 ? group_of(words[0]) : nullptr;
  if (group != nullptr) {
    out.write(fmt::format("{}\n\nUsage: {} {} COMMAND [flags]\n", group->summary, k_program,
                          group->name));
    std::vector<Line> lines;
    for (const auto& entry : commands()) {
      if (group_of(entry.name) == group) {
        lines.push_back({"Commands", entry.name, entry.make().table.summary});
      }
    }
    print_lines(out, lines);
    return;
  }
  const Selection selection = select_command(words);
  print_help(context, selection.entry->make().table, {}, "");
}

void print_help(Context& context, CommandTable table, const std::vector<std::string>& args,
                const std::string& group) {
  const auto own = std::find_if(engines().begin(), engines().end(),
                                [&](const Engine* each) { return each->name == group; });
  const Engine* engine = own == engines().end() ? named_engine(context, args) : *own;
  if (engine != nullptr) {
    show_only(table, *engine);
  }
  context.out.write(help_text(k_program, table, context.out.terminal().width, group));
  if (std::any_of(table.options.begin(), table.options.end(),
                  [](const Option& option) { return !option.field.empty(); })) {
    context.out.write(
        engine != nullptr
            ? fmt::format(
                  "\nThese are the flags of the {} backend; for another: --help --backend=NAME\n",
                  engine->name)
            : fmt::format("\nFlags of one backend: --help --backend=NAME ({})\n",
                          fmt::join(backend_names(), ", ")));
  }
}

Invocation help_command() { return bind(help_table, run_help); }

} // namespace dtrain
