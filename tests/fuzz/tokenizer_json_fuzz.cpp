// tokenizer.json: any bytes are read or refused with a DataError of one line, and what is read cuts
// a text into tokens of its vocabulary.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/errors.h"
#include "trainer/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const TempFolder folder;
  const std::string path =
      folder.write("tokenizer.json", {reinterpret_cast<const char*>(data), size});
  try {
    const auto tokenizer = trainer::load_tokenizer(path);
    std::vector<trainer::TokenId> ids;
    tokenizer->encode(" Éa <x> New York\t[MASK]<mask>ab's 12", ids);
    for (const trainer::TokenId id : ids) {
      if (id < 0 || static_cast<std::size_t>(id) >= tokenizer->vocabulary().size()) {
        std::abort();
      }
    }
    tokenizer->decode(ids);
  } catch (const trainer::DataError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) {
      std::abort();
    }
  }
  return 0;
}
