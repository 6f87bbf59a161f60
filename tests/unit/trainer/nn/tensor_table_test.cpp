#include "trainer/nn/tensor_table.h"

#include <doctest/doctest.h>

#include <numeric>

using namespace trainer;

TEST_CASE("a tensor's values lie where place_of() says, in each layout, whatever its shape") {
  for (const Layout layout : {Layout::row_major, Layout::panels, Layout::turned}) {
    for (const std::vector<std::size_t>& shape : std::vector<std::vector<std::size_t>>{
             {1, 1}, {3, 5}, {16, 16}, {17, 33}, {40, 2}, {70, 3, 3, 2}}) {
      if (layout == Layout::turned && shape.size() > 2) {
        continue;
      }
      CAPTURE(static_cast<int>(layout));
      CAPTURE(shape[0]);
      TensorTable table;
      table.add("weight", shape, layout);
      const Tensor& tensor = table[0];
      std::vector<float> values(tensor.count());
      std::iota(values.begin(), values.end(), 1.0F);
      std::vector<float> held(tensor.size);
      tensor.write(values, held);
      std::size_t misplaced = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        misplaced += held[tensor.place_of(i)] == values[i] ? 0 : 1;
      }
      CHECK(misplaced == 0);
      CHECK(std::accumulate(held.begin(), held.end(), 0.0) ==
            std::accumulate(values.begin(), values.end(), 0.0)); // What fills it up stays 0.
      std::vector<float> read(values.size());
      tensor.read(held, read);
      CHECK(read == values);
      const std::size_t columns = values.size() / shape[0];
      for (std::size_t first = 0; first < shape[0]; ++first) { // Rows to the end, and one less.
        for (const std::size_t last : {shape[0], shape[0] - 1}) {
          if (first < last) {
            std::vector<float> rows((last - first) * columns);
            tensor.read_rows(held, first, rows);
            CHECK(std::equal(rows.begin(), rows.end(), values.data() + first * columns));
          }
        }
      }
    }
  }
}
