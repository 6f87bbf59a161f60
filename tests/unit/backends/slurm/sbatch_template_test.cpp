#include "backends/slurm/sbatch_template.h"

#include "submit/errors.h"
#include "submit/template/render.h"
#include "submit/text/lower_case.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace dtrain::slurm {
namespace {

/// The words of a line as sbatch takes it apart: blanks end a word but within quotes, a backslash
/// takes what follows it for itself (within quotes of both kinds, too), # begins a comment.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = '\0';
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '\\' && i + 1 < line.size()) {
      word += line[++i];
      in_word = true;
    } else if (quote != '\0' ? c == quote : c == '"' || c == '\'') {
      quote = quote != '\0' ? '\0' : c;
    } else if (quote == '\0' && (c == ' ' || c == '\t')) {
      if (in_word) {
        words.push_back(word);
      }
      word.clear();
      in_word = false;
    } else if (quote == '\0' && c == '#') {
      break;
    } else {
      word += c;
      in_word = true;
    }
  }
  CHECK(quote == '\0');
  if (in_word) {
    words.push_back(word);
  }
  return words;
}

std::string fill(std::string_view text, const nlohmann::json& data) {
  try {
    return render_template("job.sbatch", text, data, {k_sbatch_kind});
  } catch (const UsageError& error) {
    return std::string("refused: ") + error.what();
  }
}

} // namespace

TEST_CASE("an option's value reaches Slurm as it was, whatever is in it") {
  std::string every_byte;
  for (int byte = 1; byte < 256; ++byte) {
    every_byte += byte == '\n' ? ' ' : static_cast<char>(byte);
  }
  for (const std::string& value :
       {std::string("mnist"), std::string(""), std::string("a b"), std::string("a\"b'c\\d"),
        std::string("#x"), std::string(" # x"), std::string(":"), std::string("\\"),
        std::string("a'; echo foo"), std::string("a\"=0\""), std::string("$(id) `id` ~ *"),
        std::string("my hetjob, PackJob and packjobs"), std::string("hethetjobjob"), every_byte}) {
    CAPTURE(value);
    const std::string line = "--x=" + quote_sbatch(value) + " --y=1";
    CHECK(words_of(line) == std::vector<std::string>{"--x=" + value, "--y=1"});
    CHECK(lower_case(line).find("hetjob") == std::string::npos);
    CHECK(lower_case(line).find("packjob") == std::string::npos);
  }
  CHECK(quote_sbatch("a-b_c.d/e,f+g@h%j=1") == "a-b_c.d/e,f+g@h%j=1");
  CHECK_THROWS_WITH_AS(quote_sbatch("a\n#SBATCH --uid=0"), doctest::Contains("newline"),
                       UsageError);
  CHECK_THROWS_AS(quote_sbatch(std::string_view("a\0b", 3)), UsageError);
}

TEST_CASE("options are quoted for Slurm, and the script behind them for sh") {
  const nlohmann::json data = {
      {"name", "a 'b' $c"}, {"nodes", 2}, {"gpus", ""}, {"args", {"~", "x"}}};
  CHECK(fill("#!/bin/sh\n"
             "#SBATCH --job-name={{name}} --nodes={{nodes}}\n"
             "{{#gpus}}\n#SBATCH --gpus={{gpus}}\n{{/gpus}}\n"
             "\n# What runs:\n"
             "srun --job-name={{name}}{{#args}} {{.}}{{/args}}\n",
             data) == "#!/bin/sh\n"
                      "#SBATCH --job-name=\"a 'b' $c\" --nodes=2\n"
                      "\n# What runs:\n"
                      "srun --job-name='a '\\''b'\\'' $c' '~' 'x'\n");
}

TEST_CASE("a tag in a line of #SBATCH is an option's whole value, or the line") {
  const nlohmann::json data = {{"x", "v"}, {"q", true}};
  for (const char* bad : {"#SBATCH --a=\"{{x}}\"\n",
                          "#SBATCH --a='{{x}}'\n",
                          "#SBATCH --a=b{{x}}\n",
                          "#SBATCH --a={{x}}b\n",
                          "#SBATCH --a={{x}}{{x}}\n",
                          "#SBATCH {{x}} --a=1\n",
                          "#SBATCH --a {{x}}\n",
                          "#SBATCH --a\\={{x}}\n",
                          "#SBATCH --a=1 # --b={{x}}\n",
                          "#SBATCH --a=1#--b={{x}}\n",
                          "#SBATCH \"--a={{x}}\n",
                          "#SBATCH --a=\"\\\"={{x}}\n",
                          "#SBATCH {{#q}}--a={{x}}{{/q}}\n",
                          "#SBATCH --a={{! no }}1\n",
                          "true\n#SBATCH --a={{x}}\n",
                          " #SBATCH --a={{x}}\n",
                          "#PBS --a={{x}}\n",
                          "{{x}}\n#SBATCH --a={{x}}\n",
                          "{{#q}}true{{/q}}\n#SBATCH --a={{x}}\n",
                          "echo '{{x}}'\n"}) {
    CAPTURE(bad);
    CHECK(fill(bad, data).starts_with("refused: job.sbatch:"));
  }
  for (const char* good :
       {"#SBATCH --a={{x}}\n", "#SBATCH {{x}}\n", "#SBATCH --a={{x}}",
        "#SBATCH --a={{x}}\t--b={{x}} # why\n", "#SBATCH --a=\"b c\" --b={{x}}\n",
        "#SBATCH --a=\\\" --b={{x}}\n", "\n  \n# don't\n#SBATCH --a={{x}}\n",
        "{{#q}}\n#SBATCH --a={{x}}\n{{/q}}\nrun {{x}}\n",
        "{{#q}}# why\n{{/q}}\n#SBATCH --a={{x}}\n", "#SBATCH --a='b\ntrue {{x}}\n"}) {
    CAPTURE(good);
    CHECK(!fill(good, data).starts_with("refused"));
  }
  CHECK(fill("#SBATCH --a={{x}}\n", {{"x", "a\nb"}}).find("has a newline") != std::string::npos);
}

} // namespace dtrain::slurm
