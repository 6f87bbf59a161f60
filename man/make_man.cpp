// Writes the pages of section 1 from the option tables: make_man FOLDER VERSION DATE.
#include "backends/engine.h"
#include "cli/commands.h"
#include "submit/fields/arena.h"
#include "submit/options/man_page.h"
#include "trainer/checkpoint/inspect.h"
#include "trainer/fill.h"
#include "trainer/options/options.h"
#include "trainer/text/tokenize.h"

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace {

constexpr int k_words = 4; ///< The program's name and three arguments.

class Pages {
 public:
  Pages(std::filesystem::path folder, dtrain::ManContext context)
      : folder_(std::move(folder)), context_(std::move(context)) {}

  void write(const std::string& name, const std::string& text, char section = '1') const {
    const auto path = folder_ / (name + "." + section);
    std::ofstream file(path, std::ios::binary);
    file << text;
    if (!file.flush()) {
      throw std::runtime_error("cannot write " + path.string());
    }
  }

  dtrain::ManContext context_of(const std::string& program) const {
    auto context = context_;
    context.program = program;
    return context;
  }

 private:
  std::filesystem::path folder_;
  dtrain::ManContext context_;
};

void write_cli_pages(const Pages& pages) {
  const auto context = pages.context_of("dtrain");
  std::vector<dtrain::Invocation> invocations; // The tables point into their options.
  std::vector<dtrain::CommandTable> tables;
  for (const auto& entry : dtrain::commands()) {
    if (!entry.group.empty()) {
      invocations.push_back(entry.make());
      tables.push_back(invocations.back().table);
      pages.write(dtrain::man_page_name(context.program, tables.back()),
                  dtrain::man_page(context, tables.back()));
    }
  }
  const auto arena =
      dtrain::man_arena(context, dtrain::submit_command().table, dtrain::engines_that_take);
  pages.write("dtrain-arena", arena, '7');
  pages.write(context.program,
              dtrain::man_overview(
                  context, "submit distributed training jobs, and train",
                  "Starts a program as the ranks of a job, tells each rank who it is, follows the "
                  "job, and says why it failed.",
                  tables));
}

void write_trainer_page(const Pages& pages) {
  trainer::TrainerOptions options;
  const auto table = trainer::trainer_command(options);
  const auto context = pages.context_of("dtrain-trainer");
  pages.write("dtrain-trainer", dtrain::man_page(context, table));
  std::string folder;
  trainer::TokenizeOptions text;
  trainer::FillOptions blanks;
  for (const auto& command : {trainer::inspect_command(folder), trainer::tokenize_command(text),
                              trainer::fill_command(blanks)}) {
    pages.write(dtrain::man_page_name(context.program, command),
                dtrain::man_page(context, command));
  }
}

} // namespace

int main(int argc, char** argv) {
  if (argc != k_words) {
    std::fputs("usage: make_man FOLDER VERSION DATE\n", stderr);
    return 2;
  }
  try {
    const Pages pages(argv[1], {.program = "",
                                .version = argv[2],
                                .date = argv[3],
                                .see_also = {"dtrain 1", "dtrain-trainer 1", "dtrain-environment 7",
                                             "dtrain-exit-codes 7"}});
    write_cli_pages(pages);
    write_trainer_page(pages);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "make_man: %s\n", error.what());
    return 1;
  }
  return 0;
}
