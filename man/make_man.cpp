// Writes the pages of section 1 from the option tables, and of section 7 what has lists of them:
// make_man FOLDER VERSION DATE ENVIRONMENT-PAGE.
#include "backends/engine.h"
#include "cli/commands.h"
#include "submit/fields/arena.h"
#include "submit/options/man_page.h"
#include "trainer/checkpoint/inspect.h"
#include "trainer/options/options.h"
#include "trainer/run/check_gpus.h"
#include "trainer/run/fill.h"
#include "trainer/run/generate.h"
#include "trainer/text/tokenize.h"

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace {

constexpr int k_words = 5; ///< The program's name and four arguments.

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

/// The page of the environment, written by hand, with its lists in the place of %NAME%.
void write_environment_page(const Pages& pages, const char* by_hand,
                            const std::vector<dtrain::CommandTable>& tables) {
  std::ifstream file(by_hand, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const auto& [mark, list] :
       {std::pair{"%variables_of_options%\n", dtrain::man_variables_of_options(tables)},
        std::pair{"%variables_of_dtrain%\n",
                  dtrain::man_variables(dtrain::environment_variables())},
        std::pair{"%variables_of_trainer%\n",
                  dtrain::man_variables(dtrain::variables_of_trainer())}}) {
    const std::size_t at = text.find(mark);
    if (at == std::string::npos) {
      throw std::runtime_error(std::string(by_hand) + " has no " + mark);
    }
    text.replace(at, std::string(mark).size(), list);
  }
  pages.write("dtrain-environment", text, '7');
}

void write_cli_pages(const Pages& pages, const char* environment_page) {
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
  write_environment_page(pages, environment_page, tables);
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
  trainer::GenerateOptions more;
  trainer::GpuCheckOptions gpus;
  for (const auto& command : {trainer::inspect_command(folder), trainer::tokenize_command(text),
                              trainer::fill_command(blanks), trainer::generate_command(more),
                              trainer::check_gpus_command(gpus)}) {
    pages.write(dtrain::man_page_name(context.program, command),
                dtrain::man_page(context, command));
  }
}

} // namespace

int main(int argc, char** argv) {
  if (argc != k_words) {
    std::fputs("usage: make_man FOLDER VERSION DATE ENVIRONMENT-PAGE\n", stderr);
    return 2;
  }
  try {
    const Pages pages(argv[1], {.program = "",
                                .version = argv[2],
                                .date = argv[3],
                                .see_also = {"dtrain 1", "dtrain-trainer 1", "dtrain-environment 7",
                                             "dtrain-exit-codes 7"}});
    write_cli_pages(pages, argv[4]);
    write_trainer_page(pages);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "make_man: %s\n", error.what());
    return 1;
  }
  return 0;
}
